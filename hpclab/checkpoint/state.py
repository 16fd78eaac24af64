"""What a checkpoint holds: training state that ranks share, and what each rank has of its own.

Everything is tensors, numbers, strings, lists and dictionaries, so that files load with `weights_only=True`.
"""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpclab.distributed.audit import fingerprints, leaves, name
from hpclab.errors import CheckpointError

State = dict[str, Any]


def capture_random_streams(device: torch.device) -> State:
    """Return the position of every random stream of this process: Python, NumPy, torch on the CPU and on `device`."""
    version, internal, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: State = {
        "python": {"version": version, "internal": torch.tensor(internal, dtype=torch.int64), "gauss": gauss},
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch_cpu": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["torch_cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_streams(state: State, device: torch.device) -> None:
    """Put every random stream back where `capture_random_streams` found it."""
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["internal"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, numpy["position"], numpy["has_gauss"], numpy["cached"]))
    torch.set_rng_state(state["torch_cpu"])
    if device.type == "cuda" and "torch_cuda" in state:
        torch.cuda.set_rng_state(state["torch_cuda"], device)


def to_host(state: State) -> State:
    """Return a copy of `state` on the CPU that nothing changes afterwards, of what can be loaded safely.

    Raises:
        TypeError: `state` holds something else than tensors, numbers, strings, lists and dictionaries.
    """
    copied: State = _portable(state)
    return copied


def to_bytes(state: State) -> bytes:
    """Serialise `state`, tensors moved to the CPU and without the rest of the storage they are a view of."""
    buffer = io.BytesIO()
    torch.save(_portable(state, copy=False), buffer)
    return buffer.getvalue()


def from_bytes(data: bytes, file: str) -> State:
    """Return what `to_bytes` serialised, on the CPU.

    Raises:
        CheckpointError: `data`, read from `file`, is something else.
    """
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different class for each way of being damaged
        raise CheckpointError(f"{file} cannot be loaded: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{file} holds a {type(state).__name__}, not a checkpoint's state")
    return state


def shapes(state: State) -> dict[str, list[int]]:
    """Return the shape of every tensor in `state` by its path, as in "algorithm/actor/mlp.0.weight"."""
    return {name(path): list(leaf.shape) for path, leaf in leaves(state) if isinstance(leaf, Tensor)}


def difference(state: State, reference: Tensor) -> list[list[Any]]:
    """Return [path, value] of every leaf of `state` whose fingerprint is not that of `reference`.

    A rank's own algorithm state is saved as its difference from rank 0's: what is rank-local by the run's semantics
    (such as the moments of a local normaliser) is kept without anybody having to list it.

    Args:
        state: what this rank holds.
        reference: (L,) `fingerprints` of what rank 0 holds, of as many leaves.
    """
    differs = (fingerprints(state, reference.device) != reference).tolist()
    return [[list(path), leaf] for (path, leaf), other in zip(leaves(state), differs, strict=True) if other]


def apply_difference(state: State, changes: list[list[Any]]) -> None:
    """Put back into `state`, in place, what `difference` returned."""
    for path, value in changes:
        *parents, last = path
        node: Any = state
        for key in parents:
            node = node[key]
        node[last] = value


def _portable(value: Any, *, copy: bool = True) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().to("cpu", copy=copy)
        return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()
    if isinstance(value, dict):
        return {key: _portable(entry, copy=copy) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(entry, copy=copy) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint holds tensors, numbers, strings, lists and dictionaries, not {type(value).__name__}")
