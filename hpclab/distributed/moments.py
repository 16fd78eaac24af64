"""Moments of samples that are spread over ranks, merged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hpclab.distributed.collectives import Collectives


class Moments(NamedTuple):
    """Number, mean and sum of squared deviations of samples with D features, all float64."""

    num_samples: Tensor
    """()"""
    mean: Tensor
    """(D,) mean of each feature."""
    m2: Tensor
    """(D,) sum of squared deviations from the mean."""


def measure(samples: Tensor) -> Moments:
    """Return the moments of (..., D) samples."""
    rows = samples.reshape(-1, samples.shape[-1]).to(torch.float64)
    mean = rows.mean(dim=0)
    m2 = (rows - mean).square_().sum(dim=0)
    return Moments(torch.full((), rows.shape[0], dtype=torch.float64, device=rows.device), mean, m2)


def combine(a: Moments, b: Moments) -> Moments:
    """Return the moments of both sets of samples. Source: Chan, Golub and LeVeque 1979, STAN-CS-79-773, eq. 2.1."""
    count = a.num_samples + b.num_samples
    share = b.num_samples / count.clamp(min=1.0)
    delta = b.mean - a.mean
    return Moments(count, a.mean + delta * share, a.m2 + b.m2 + delta.square() * (a.num_samples * share))


def gather(local: Sequence[Moments], collectives: Collectives) -> list[Moments]:
    """Merge each of `local` over all ranks: one packed all_gather, then `combine` in the order of ranks.

    Every rank computes the same sums in the same order, so the results are equal bit for bit.
    """
    if collectives.world_size == 1:
        return list(local)
    packed = torch.cat([part.reshape(-1) for moments in local for part in moments])
    by_rank = [_unpack(row, local) for row in collectives.all_gather(packed)]
    merged = by_rank[0]
    for others in by_rank[1:]:
        merged = [combine(a, b) for a, b in zip(merged, others, strict=True)]
    return merged


def _unpack(row: Tensor, like: Sequence[Moments]) -> list[Moments]:
    sizes = [part.numel() for moments in like for part in moments]
    parts = iter(torch.split(row, sizes))
    return [Moments(*(next(parts).view_as(part) for part in moments)) for moments in like]
