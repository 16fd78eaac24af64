"""The moments by which observations are normalised: each rank's own, or those of all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from hpclab.distributed import moments
from hpclab.distributed.moments import Moments
from hpclab.envs.vec_env import Observations
from hpclab.models.normalizers import RunningNormalizer


class ObservationMoments:
    """Brings the normalisers of several networks up to date, as `sync.normalizer` says.

    local: each follows this rank's observations, step by step. global: all observations of a rollout are measured,
    gathered over the ranks and merged, so that every rank holds the same moments and they stand still in between.
    """

    def __init__(self, readers: Sequence[tuple[str, object]], *, local: bool) -> None:
        """Take the normalisers.

        Args:
            readers: an observation group and what normalises it; anything but a `RunningNormalizer` is left out.
            local: whether each rank's moments are its own.
        """
        self._normalizers = [(group, found) for group, found in readers if isinstance(found, RunningNormalizer)]
        self._local = local

    def step(self, observations: Observations) -> None:
        """Let local moments follow the observations of one step."""
        if self._local:
            for group, normalizer in self._normalizers:
                normalizer.update(observations[group])

    def measure(self, observations: Observations, last: Observations) -> list[Moments]:
        """Return this rank's moments of what a rollout's steps led to, s_1 .. s_T of every environment; none if local.

        Args:
            observations: (T, N, D) s_0 .. s_T-1, by group.
            last: (N, D) s_T, by group.
        """
        if self._local:
            return []
        reached = [
            torch.cat([observations[group][1:], last[group].unsqueeze(0)])[..., : normalizer.num_features]
            for group, normalizer in self._normalizers
        ]
        return [moments.measure(values) for values in reached]

    def merge(self, deltas: Iterator[Moments]) -> None:
        """Take the measured moments of all ranks into the normalisers, in the order of `measure`."""
        if not self._local:
            for _, normalizer in self._normalizers:
                normalizer.merge(next(deltas))

    def restart(self) -> None:
        """Follow a loaded state, where a run may have changed over from local to merged moments."""
        if not self._local:
            for _, normalizer in self._normalizers:
                normalizer.start_exact()
