"""Bring an iteration's numbers to the host: one collective and one transfer, whatever their count."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hpclab.distributed.collectives import Collectives

Number = Tensor | float


class PackedSum:
    """Sums named numbers over the ranks. The names of the first call are the names of every call, on every rank."""

    def __init__(self, collectives: Collectives, device: torch.device) -> None:
        self._collectives = collectives
        self._device = device
        self._names: list[str] | None = None

    def read(self, shared: Mapping[str, Number], own: Mapping[str, Number]) -> dict[str, float]:
        """Return `shared` summed over all ranks and `own` as it is. Collective; waits for the device, once.

        Names that only some ranks have in `shared` count as zero on the others.
        """
        if self._names is None:
            every = self._collectives.gather_objects(sorted(shared))
            self._names = sorted({name for names in every for name in names})
        assert shared.keys() <= set(self._names), (
            f"new names in a packed sum: {sorted(shared.keys() - set(self._names))}"
        )
        packed = self._pack([shared.get(name, 0.0) for name in self._names])
        self._collectives.all_reduce_sum(packed)
        numbers = torch.cat([packed, self._pack(list(own.values()))]).tolist()
        return dict(zip([*self._names, *own], numbers, strict=True))

    def _pack(self, values: list[Number]) -> Tensor:
        """Return the values as one float64 tensor; those of the host cross over together."""
        if not values:
            return torch.empty(0, dtype=torch.float64, device=self._device)
        host = torch.tensor([0.0 if isinstance(value, Tensor) else value for value in values], dtype=torch.float64)
        packed = host.to(self._device)
        places = [index for index, value in enumerate(values) if isinstance(value, Tensor)]
        if places:
            tensors = [value.detach().double().reshape(()) for value in values if isinstance(value, Tensor)]
            packed[torch.tensor(places, device=self._device)] = torch.stack(tensors)
        return packed
