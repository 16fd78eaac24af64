"""Evaluates termination terms."""

from __future__ import annotations

import functools
import operator
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
        """Bind the terms.

        Raises:
            ValueError: one is called `diverged`.
        """
        if diverged.__name__ in terms:
            raise ValueError(f"a termination term may not be called {diverged.__name__}: every task has one already")
        all_terms: dict[str, Term] = {diverged.__name__: TerminationTerm(diverged), **terms}
        # Terminations first, time limits last, so that each kind is one slice.
        ordered = sorted(all_terms, key=lambda name: getattr(all_terms[name], "time_out", False))
        self._num_terminations = sum(not getattr(all_terms[name], "time_out", False) for name in ordered)
        self._terms = [all_terms[name].bind(env) for name in ordered]
        self._tags = [f"Episode_Termination/{name}" for name in ordered]
        # summed over the environments when read, which is seldom
        self._counts = env.buffers.per_env("terminations/counts", len(ordered) + 1)
        self._by_tag = self._counts.t()
        nowhere = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        self._fired = [nowhere] * len(ordered)
        """(N,) bool by each term in the last control step."""

    def compute(self) -> tuple[Tensor, Tensor]:
        """Return (N,) bool masks: the episode ended; it ended by a time limit alone."""
        fired: list[Tensor] = [term() for term in self._terms]
        terminated = functools.reduce(operator.or_, fired[: self._num_terminations])
        dones = functools.reduce(operator.or_, fired[self._num_terminations :], terminated)
        self._fired = fired
        return dones, dones > terminated

    def close_episodes(self, ended: Tensor) -> None:
        """Book the episodes of environments in `ended` (N,), which the last `compute` has found."""
        self._by_tag.add_(torch.cat([*self._fired, ended]).view(len(self._fired) + 1, -1))

    def read_totals(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return how many episodes ended since the last call, and how many by each term; clear the counts."""
        *by_term, count = self._counts.sum(dim=0).unbind()
        self._counts.zero_()
        return count, dict(zip(self._tags, by_term, strict=True))
