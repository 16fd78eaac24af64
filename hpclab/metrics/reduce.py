"""Bring an iteration's numbers to the host: one collective and one transfer, whatever their count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hpclab.distributed.collectives import Collectives

Number = Tensor | float


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a rank records, and how the ranks' numbers become one."""

    value: Number
    reduction: Literal["mean", "sum", "min", "max"]
    per: str | None = None
    """Of a mean: the name of the count that `value` is the sum of; each rank counts once when not given."""


class Reduction:
    """Makes one number of each metric: of the ranks that share theirs, or of one rank alone."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._ranks = range(world_size)

    def pack(self, metrics: Mapping[str, Metric], counts: Mapping[str, Number]) -> dict[str, Number]:
        """Return the numbers whose sums over the ranks `unpack` needs; an extreme has a place for every rank."""
        packed = dict(counts)
        for tag, metric in metrics.items():
            if metric.reduction in ("mean", "sum"):
                packed[tag] = metric.value
            else:
                packed |= {_place(tag, rank): metric.value if rank == self._rank else 0.0 for rank in self._ranks}
        return packed

    def unpack(self, metrics: Mapping[str, Metric], sums: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics by tag, from sums of what `pack` returned; what is of nothing is left out."""
        return dict(self._unpack(metrics, sums))

    def _unpack(self, metrics: Mapping[str, Metric], sums: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        for tag, metric in metrics.items():
            if metric.reduction == "sum":
                yield tag, sums[tag]
            elif metric.reduction == "mean":
                count = len(self._ranks) if metric.per is None else sums[metric.per]
                if count:
                    yield tag, sums[tag] / count
            else:
                values = [sums[_place(tag, rank)] for rank in self._ranks]
                value = min(values) if metric.reduction == "min" else max(values)
                if not math.isinf(value):
                    yield tag, value


def _place(tag: str, rank: int) -> str:
    return f"{tag} of rank {rank}"


def _to_host(numbers: Tensor) -> list[float]:
    """Wait for the device: in an iteration, only here."""
    values: list[float] = numbers.tolist()
    return values


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
        numbers = torch.cat([packed, self._pack(list(own.values()))])
        return dict(zip([*self._names, *own], _to_host(numbers), strict=True))

    def _pack(self, values: list[Number]) -> Tensor:
        """Return the values as one float64 tensor; none is copied from the host, which would wait."""
        if not values:
            return torch.empty(0, dtype=torch.float64, device=self._device)
        return torch.stack([self._place(value) for value in values])

    def _place(self, value: Number) -> Tensor:
        if isinstance(value, Tensor):
            return value.detach().double().reshape(())
        return torch.full((), value, dtype=torch.float64, device=self._device)
