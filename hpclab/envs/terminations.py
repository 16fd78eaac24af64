"""Evaluates termination terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import Term, TerminationTerm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpclab.envs.manager import ManagerEnv


def diverged(env: ManagerEnv) -> Tensor:
    """The state of the world is no longer finite."""
    return env.sim.diverged


class TerminationManager:
    """The termination terms of a task, and `diverged`, which every task has."""

    def __init__(self, env: ManagerEnv, terms: Mapping[str, TerminationTerm]) -> None:
        all_terms: dict[str, Term] = {"diverged": TerminationTerm(diverged), **terms}
        # Terminations first, time limits last, so that each kind is one slice.
        ordered = sorted(all_terms, key=lambda name: getattr(all_terms[name], "time_out", False))
        self._num_terminations = sum(not getattr(all_terms[name], "time_out", False) for name in ordered)
        self._terms = [all_terms[name].bind(env) for name in ordered]
        self._tags = [f"Episode_Termination/{name}" for name in ordered]
        self._totals = env.buffers.shared("terminations/totals", len(ordered))

    def compute(self) -> tuple[Tensor, Tensor]:
        """Return (N,) bool masks: the episode ended; it ended by a time limit alone."""
        fired = torch.stack([term() for term in self._terms])
        self._totals.add_(fired.sum(dim=1))
        terminated = fired[: self._num_terminations].any(dim=0)
        dones = fired.any(dim=0)
        return dones, dones > terminated

    def read_totals(self) -> dict[str, Tensor]:
        """Return how often each term ended an episode since the last call, and clear the counts."""
        values = self._totals.clone()
        self._totals.zero_()
        return dict(zip(self._tags, torch.unbind(values), strict=True))
