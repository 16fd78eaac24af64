"""Evaluates reward and metric terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant
from hpclab.envs.ledger import EpisodeLedger
from hpclab.envs.spec import RewardTerm, Term

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpclab.envs.manager import ManagerEnv


def _by_term(terms: Sequence[Callable[[], Tensor]]) -> Tensor:
    """Evaluate K terms; return (K, N) values. One after the other and reshaped: stacking makes a view of each first."""
    return torch.cat([term() for term in terms]).view(len(terms), -1)


class RewardManager:
    """The reward terms of a task, weighted and multiplied by the control step's length.

    Attributes:
        names: K terms of non-zero weight.
        ledger: their sums over episodes, in units of one second of reward (divided by the episode's time limit).
    """

    def __init__(self, env: ManagerEnv, terms: Mapping[str, RewardTerm]) -> None:
        evaluated = {name: term for name, term in terms.items() if term.weight != 0}
        self.names = list(evaluated)
        self._terms = [term.bind(env) for term in evaluated.values()]
        factors = [term.weight * env.step_dt for term in evaluated.values()]
        self._factors = torch.tensor(factors, device=env.device).unsqueeze(1)
        self.ledger = EpisodeLedger(env.buffers, "rewards", [f"Episode_Reward/{name}" for name in self.names])
        self._per_episode = constant(1.0 / env.episode_length_s, env.device)
        self._by_term = torch.zeros(len(self.names), env.num_envs, device=env.device)

    @property
    def values(self) -> Tensor:
        """(N, K) weight * value * step_dt of the last control step."""
        return self._by_term.t()

    def compute(self) -> Tensor:
        """Return the (N,) reward of this control step."""
        by_term = _by_term(self._terms).mul_(self._factors)
        self._by_term = by_term.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self.ledger.add(self._by_term)
        return self._by_term.sum(dim=0)

    def close_episodes(self, ended: Tensor) -> None:
        """Book the episodes of environments in `ended` (N,)."""
        self.ledger.close(ended, self._per_episode)


class MetricManager:
    """Values of interest that are no reward, logged as their mean over each episode."""

    def __init__(self, env: ManagerEnv, terms: Mapping[str, Term]) -> None:
        self._terms = [term.bind(env) for term in terms.values()]
        self._steps = env.buffers.per_env("metrics/steps")
        self._one = constant(1.0, env.device)
        self.ledger = EpisodeLedger(env.buffers, "metrics", [f"Metrics/{name}" for name in terms])

    def compute(self) -> None:
        """Take in this control step."""
        if self._terms:
            by_term = _by_term(self._terms)
            self.ledger.add(by_term.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0))
            self._steps.add_(self._one)

    def close_episodes(self, ended: Tensor) -> None:
        """Book the episodes of environments in `ended` (N,)."""
        if self._terms:
            self.ledger.close(ended, torch.maximum(self._steps, self._one).reciprocal_())
            self._steps.masked_fill_(ended, 0.0)
