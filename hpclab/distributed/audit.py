"""Fingerprints of training state, and the check that ranks still hold the same.

A fingerprint is 64 bits a leaf, computed on the device that holds it: every element's bits and its index go through a
mixing function, and the results are added with wrap-around. Addition does not depend on order, so the same bits give
the same fingerprint on any device. Two leaves that differ have the same one with a probability of about 2^-64 (the
chance that a sum of mixed words comes out the same); over 100 leaves of 1000 ranks audited every second for a year,
that is below 1e-6. Nothing here defends against a forger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hpclab.distributed.collectives import Collectives

Path = tuple[Any, ...]
_BY_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_SPREAD = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xFF51AFD7ED558CCD)
_SECOND = _signed(0xC4CEB9FE1A85EC53)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf of nested dictionaries and lists with its path, in their order."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))
    else:
        yield path, value


def name(path: Path) -> str:
    """Return a leaf's path as one word, as in "actor/mlp.0.weight"."""
    return "/".join(map(str, path))


@torch.no_grad()
def fingerprints(state: Any, device: torch.device) -> Tensor:
    """Return (L,) int64 on `device`: one fingerprint a leaf of `state`. Does not wait for the device."""
    words = [_fingerprint(leaf, device) for _, leaf in leaves(state)]
    return torch.stack(words) if words else torch.empty(0, dtype=torch.int64, device=device)


def _fingerprint(leaf: Any, device: torch.device) -> Tensor:
    if not isinstance(leaf, Tensor):
        return torch.tensor(_hash(repr(leaf)), dtype=torch.int64).to(device, non_blocking=True)
    bits = leaf.detach().contiguous().reshape(-1).view(_BY_SIZE[leaf.element_size()]).to(torch.int64)
    # Source of the mixing: the finaliser of MurmurHash3 (A. Appleby, public domain), on products with an odd constant.
    words = torch.arange(1, bits.numel() + 1, device=leaf.device).mul_(_SPREAD).add_(bits * _FIRST)
    words ^= _shifted(words)
    words *= _FIRST
    words ^= _shifted(words)
    words *= _SECOND
    words ^= _shifted(words)
    return (words.sum() + _hash(f"{leaf.dtype} {tuple(leaf.shape)}")).to(device, non_blocking=True)


def _shifted(words: Tensor) -> Tensor:
    """Shift by 33 bits without the sign that torch's shift draws in."""
    return (words >> 33).bitwise_and_((1 << 31) - 1)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Training state that should be equal on all ranks and is not."""

    first: str
    """Path of the first leaf that differs."""
    count: int
    """Leaves that differ."""
    ranks: tuple[int, ...]
    """Ranks whose first differing leaf is not what most ranks hold; the lower rank's counts where opinions tie."""
    world_size: int

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        which = "rank" if len(self.ranks) == 1 else "ranks"
        return f"training state differs between ranks: {self.first}{more}, on {which} {listed} of {self.world_size}"


def compare(state: Any, collectives: Collectives, device: torch.device) -> Divergence | None:
    """Compare `state` over the ranks: one small all_gather. Every rank returns the same; waits for the device, once."""
    if collectives.world_size == 1:
        return None
    gathered = collectives.all_gather(fingerprints(state, device))
    table = gathered.T.tolist()
    differing = [index for index, row in enumerate(table) if len(set(row)) > 1]
    if not differing:
        return None
    row = table[differing[0]]
    usual = max(row, key=lambda word: (row.count(word), -row.index(word)))
    odd = tuple(rank for rank, word in enumerate(row) if word != usual)
    paths = [path for path, _ in leaves(state)]
    return Divergence(name(paths[differing[0]]), len(differing), odd, len(row))
