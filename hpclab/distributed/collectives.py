"""Collectives over one process group, and the process group's lifetime."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from hpclab.distributed.rendezvous import Place, meet


class RankContext(Place, Protocol):
    """What the process group needs to know of this rank."""

    @property
    def master_port(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives over one process group, each the identity when `group` is None.

    Every method is collective: all ranks call it, in the same order and with the same shapes, or all ranks hang.
    """

    group: dist.ProcessGroup | None = None
    rank: int = 0
    world_size: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    """Calls so far that reached the group, by method: all_reduce, broadcast, all_gather, barrier, objects."""

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum `tensor` over the ranks, in place, and return it."""
        return self._all_reduce(tensor, dist.ReduceOp.SUM)

    def all_reduce_max(self, tensor: Tensor) -> Tensor:
        """Take the elementwise maximum of `tensor` over the ranks, in place, and return it."""
        return self._all_reduce(tensor, dist.ReduceOp.MAX)

    def _all_reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.group is not None:
            self.counts["all_reduce"] += 1
            dist.all_reduce(tensor, op=operation, group=self.group)
        return tensor

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Overwrite `tensor` on every rank with rank `source`'s, in place, and return it."""
        if self.group is not None:
            self.counts["broadcast"] += 1
            dist.broadcast(tensor, src=source, group=self.group)
        return tensor

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Return (world_size, *tensor.shape): `tensor` of every rank, by rank."""
        if self.group is None:
            return tensor.unsqueeze(0)
        self.counts["all_gather"] += 1
        gathered = tensor.new_empty((self.world_size, *tensor.shape))
        dist.all_gather(list(gathered.unbind(0)), tensor.contiguous(), group=self.group)
        return gathered

    def gather_objects(self, value: Any) -> list[Any]:
        """Return every rank's picklable `value`, by rank; slow, for start and end of a run."""
        if self.group is None:
            return [value]
        self.counts["objects"] += 1
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.group is not None:
            self.counts["barrier"] += 1
            dist.barrier(group=self.group)


@contextmanager
def process_group(
    context: RankContext,
    *,
    device: torch.device,
    timeout_s: float,
    meeting: Path | None = None,
    meeting_s: float | None = None,
) -> Iterator[Collectives]:
    """Join the process group of all ranks (NCCL on CUDA, gloo on the CPU) and leave it at the end.

    One rank alone needs no group: its collectives are the identity.

    Args:
        context: this rank, the world size, and the rendezvous address and port, the same on every rank.
        meeting: file through which rank 0 tells a port of its own, in place of the context's; see `rendezvous.meet`.
        meeting_s: for all ranks to come and connect, where that is not `timeout_s` [s].
        device: the device of this rank; with CUDA it also becomes the current one.
        timeout_s: a collective that takes longer fails [s].

    Raises:
        torch.distributed.DistError: the ranks did not meet in time.
        LaunchError: rank 0 did not say in time where.
    """
    if context.world_size == 1:
        yield Collectives()
        return
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.cuda.set_device(device)  # objects and barriers travel on the current device
    host = f"[{context.master_addr}]" if ":" in context.master_addr else context.master_addr
    meeting_s = timeout_s if meeting_s is None else meeting_s
    store = None if meeting is None else meet(meeting, context, timeout_s=meeting_s)
    dist.init_process_group(
        "nccl" if on_cuda else "gloo",
        init_method=f"tcp://{host}:{context.master_port}" if store is None else None,
        store=store,
        rank=context.rank,
        world_size=context.world_size,
        timeout=datetime.timedelta(seconds=meeting_s),
        device_id=device if on_cuda else None,
    )
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=timeout_s))
    try:
        yield Collectives(dist.group.WORLD, context.rank, context.world_size)
    finally:
        dist.destroy_process_group()
