"""Deal the environments that some ranks saved to other ranks. No torch here but in what is handed in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """Environments of one rank that saved, next to each other, which continue on one rank of now."""

    source: int
    """The rank that saved them."""
    first: int
    """The first of them, there."""
    at: int
    """The first of them, here."""
    count: int


@dataclass(frozen=True, slots=True)
class Dealing:
    """Environments are numbered through over all ranks, those saved as those of now; equal numbers continue."""

    saved: tuple[int, ...]
    """Environments of each rank that saved."""
    now: tuple[int, ...]
    """Environments of each rank of now."""

    def pieces(self, rank: int) -> list[Piece]:
        """Return what a rank of now takes over, in the order of its environments; the rest of it starts anew."""
        begin = sum(self.now[:rank])
        end = begin + self.now[rank]
        found = []
        start = 0
        for source, count in enumerate(self.saved):
            first, last = max(begin, start), min(end, start + count)
            if first < last:
                found.append(Piece(source, first - start, first - begin, last - first))
            start += count
        return found

    def describe(self, rank: int) -> str:
        """Say exactly what continues on `rank`, and what becomes of all environments of the run."""
        parts = [f"{piece.count} of rank {piece.source}'s" for piece in self.pieces(rank)]
        continuing = sum(piece.count for piece in self.pieces(rank))
        mine = f"of its {self.now[rank]} environments here {' and '.join(parts) or 'none'} continue"
        mine += f" and {self.now[rank] - continuing} start anew"
        total = min(sum(self.saved), sum(self.now))
        return (
            f"{mine}; over all ranks {total} continue, {sum(self.now) - total} start anew, "
            f"{sum(self.saved) - total} of the checkpoint are left out"
        )


def place(target: dict[str, Any], source: dict[str, Any], piece: Piece, shared: Collection[str] = ()) -> None:
    """Copy the environments of `piece` from one environment state into another, in place.

    Args:
        target: state of a rank of now, fresh.
        source: state of the rank that saved.
        piece: which environments, and where they go.
        shared: names of tensors that belong to no single environment; these stay as they are.
    """
    _place(target, source, piece, shared, (target["num_envs"], source["num_envs"]))


def _place(target: Any, source: Any, piece: Piece, shared: Collection[str], sizes: tuple[int, int]) -> None:
    for key, value in target.items():
        if key in shared or key not in source:
            continue
        if isinstance(value, dict):
            _place(value, source[key], piece, shared, sizes)
        elif not hasattr(value, "shape") or (value.shape[:1], source[key].shape[:1]) != (sizes[:1], sizes[1:]):
            continue  # of no single environment
        elif value.shape[1:] == source[key].shape[1:]:  # otherwise loading says what does not fit
            value[piece.at : piece.at + piece.count] = source[key][piece.first : piece.first + piece.count]
