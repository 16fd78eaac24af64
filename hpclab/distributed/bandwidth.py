"""How fast ranks exchange data."""

from __future__ import annotations

import time

import torch

from hpclab.distributed.collectives import Collectives

NUM_BYTES = 64 * 10**6
"""About the gradients of sixteen million parameters."""
_REPEATS = 5


def measure_all_reduce(collectives: Collectives, device: torch.device, num_bytes: int = NUM_BYTES) -> float:
    """Return the bus bandwidth of an all-reduce in bytes per second; collective, and the same on every rank.

    The bus bandwidth counts what each rank must send and receive at least, 2 (W - 1) / W times the data, so that it can
    be compared with the network's own speed whatever the number of ranks W. Source: nccl-tests, doc/PERFORMANCE.md.

    Raises:
        RuntimeError: the sum is wrong.
    """
    tensor = torch.ones(num_bytes // 4, device=device)
    collectives.all_reduce_sum(tensor)  # opens the connections
    if int(tensor[0]) != collectives.world_size or int(tensor[-1]) != collectives.world_size:
        raise RuntimeError(f"the all-reduce of ones over {collectives.world_size} ranks gave {tensor[0].item()}")
    collectives.barrier()
    start = time.perf_counter()
    for _ in range(_REPEATS):
        tensor.fill_(1.0)
        collectives.all_reduce_sum(tensor)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    longest = torch.tensor([time.perf_counter() - start], device=device)
    seconds = float(collectives.all_reduce_max(longest)) / _REPEATS
    share = 2 * (collectives.world_size - 1) / collectives.world_size
    return share * num_bytes / seconds
