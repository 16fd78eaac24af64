"""Whose statistics curricula decide from: this rank's, rank 0's, or those of all ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hpclab.config.schema import SyncSection
from hpclab.envs.vec_env import VecEnv
from hpclab.metrics.reduce import Number


class CurriculumSync:
    """Lets a rank's curricula decide once per iteration; what they need of other ranks travels with the metrics."""

    def __init__(self, env: VecEnv, sync: SyncSection, rank: int) -> None:
        self._env = env
        self._source = sync.resolved().curriculum
        self._rank = rank
        self._names = [f"curriculum {index}" for index in range(len(env.curriculum_statistics()))]

    def shared(self) -> dict[str, Number]:
        """Return what is to be summed over the ranks."""
        return {} if self._source == "local" else self._numbers(counts=self._source == "global" or self._rank == 0)

    def own(self) -> dict[str, Number]:
        """Return what is not."""
        return self._numbers() if self._source == "local" else {}

    def decide(self, numbers: Mapping[str, float]) -> None:
        """Let curricula decide from `shared`, summed, or `own`."""
        if self._names:
            statistics = [numbers[name] for name in self._names]
            self._env.decide_curriculum(torch.tensor(statistics, device=self._env.device))

    def _numbers(self, *, counts: bool = True) -> dict[str, Number]:
        statistics: Tensor = self._env.curriculum_statistics()
        return dict(zip(self._names, statistics if counts else torch.zeros_like(statistics), strict=True))
