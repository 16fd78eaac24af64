"""Saved simulation states: what may be loaded into which simulation."""

from __future__ import annotations

from torch import Tensor


def check_state(state: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless `state` has exactly the tensors of `shapes`."""
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if found != shapes:
        different = sorted(name for name in found.keys() | shapes.keys() if found.get(name) != shapes.get(name))
        details = ", ".join(f"{name}: {found.get(name)} saved, {shapes.get(name)} here" for name in different)
        raise ValueError(f"this state belongs to another simulation ({details})")
