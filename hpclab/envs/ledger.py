"""Sums of per-step values over episodes, and over the episodes that have ended."""

from __future__ import annotations

import torch
from torch import Tensor

from hpclab.envs.buffers import Buffers
from hpclab.envs.constants import constant


class EpisodeLedger:
    """C named values per environment, summed over its running episode, then over the episodes that ended.

    Attributes:
        sums: (N, C) over each running episode.
        totals: (C,) over ended episodes since the last `read`.
    """

    def __init__(self, buffers: Buffers, name: str, tags: list[str]) -> None:
        self.tags = tags
        self.sums = buffers.per_env(f"{name}/sums", len(tags))
        self._by_tag = self.sums.t()
        self.totals = buffers.shared(f"{name}/totals", len(tags))

    def add(self, values: Tensor) -> None:
        """Add one control step's (C, N) values."""
        self._by_tag.add_(values)

    def close(self, ended: Tensor, weight: Tensor) -> None:
        """Move the sums of environments in `ended` (N,) bool, times `weight` (N,) or (), to the totals."""
        self.totals.addmv_(self._by_tag, torch.where(ended, weight, constant(0.0, ended.device)))
        self.sums.masked_fill_(ended.unsqueeze(1), 0.0)

    def read(self) -> dict[str, Tensor]:
        """Return the totals by tag, each 0-dimensional, and clear them."""
        values = self.totals.clone()
        self.totals.zero_()
        return dict(zip(self.tags, torch.unbind(values), strict=True))
