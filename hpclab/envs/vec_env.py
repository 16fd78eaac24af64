"""What a runner needs of a batch of environments, whatever simulates them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from hpclab.envs.mirror import Mirror

Observations = dict[str, Tensor]
"""Observation groups by name ("actor", "critic"), each (N, dim) float32; the next step overwrites them in place."""


class Step(NamedTuple):
    """What one control step returns. Shapes: N environments of this rank.

    All but the observations are tensors of this step alone: the next one leaves them as they are.
    """

    observations: Observations
    """After resets: for an environment that ended, the first observation of its next episode."""
    rewards: Tensor
    """(N,) float32, already multiplied by the control step's length."""
    dones: Tensor
    """(N,) bool, the episode ended, by termination or time-out."""
    time_outs: Tensor
    """(N,) bool, the episode ended by a time limit alone: its value is bootstrapped."""


@dataclass(frozen=True, slots=True)
class EpisodeTotals:
    """Sums over the episodes that ended since the last read; 0-dimensional tensors, additive over ranks."""

    count: Tensor
    """Episodes ended."""
    sums: dict[str, Tensor]
    """By log tag (`Episode_Reward/<term>`, `Episode_Termination/<term>`, `Metrics/<name>`): sum over those episodes."""


@dataclass(frozen=True, slots=True)
class CurriculumLevels:
    """How far curricula have come, by log tag (`Curriculum/<curriculum>/<name>`); 0-dimensional tensors."""

    means: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Sum over environments and how many they are, additive over ranks. There may be none of a kind on a rank."""
    maxima: dict[str, Tensor] = field(default_factory=dict)
    """Highest of the environments; minus infinity where there are none."""


def _no_mirror() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """What an algorithm must know of the environments of its rank before it sees them."""

    observation_dims: dict[str, int]
    """Size of each observation group."""
    num_actions: int
    """A."""
    num_envs: int
    """N, environments of this rank."""
    device: torch.device
    """Where they live, and what learns from them."""
    step_dt: float = 1.0
    """Length of a control step [s]."""
    mirror: Callable[[], Mirror | None] = _no_mirror
    """Returns what observations and actions look like in the mirror, where the task says so."""

    @classmethod
    def of(cls, env: VecEnv) -> EnvironmentSpec:
        """Return what is to be known of `env`."""
        return cls(
            observation_dims=env.observation_dims,
            num_actions=env.num_actions,
            num_envs=env.num_envs,
            device=env.device,
            step_dt=env.step_dt,
            mirror=env.mirror,
        )


class VecEnv(Protocol):
    """N environments of one rank, stepped together on one device.

    `step` never waits for the device: no `.item()`, no Python branch on data.
    """

    num_envs: int
    num_actions: int
    device: torch.device
    step_dt: float
    """Length of a control step [s]."""
    max_episode_length: int
    """Control steps after which an episode times out."""

    @property
    def observation_dims(self) -> dict[str, int]:
        """Size of each observation group."""
        ...

    def mirror(self) -> Mirror | None:
        """Return what observations and actions look like in the mirror, where the task says so.

        Raises:
            ConfigError: it leaves something out.
        """
        ...

    def reset(self) -> Observations:
        """Start every environment anew (episode lengths randomised where the task says so) and observe."""
        ...

    def observe(self) -> Observations:
        """Return the observations of the current state, as the last `reset` or `step` computed them."""
        ...

    def step(self, actions: Tensor) -> Step:
        """Apply (N, num_actions) raw policy actions for one control step."""
        ...

    def capturing(self) -> AbstractContextManager[None]:
        """Enter while `step` is captured in a CUDA graph on torch's current stream."""
        ...

    def read_episode_totals(self) -> EpisodeTotals:
        """Return the totals since the last call and clear them."""
        ...

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        """Return counts of what should not happen (NaN states, contact overflow by name) since the last call.

        They are 0-dimensional tensors where the environments are on a device, so that nothing waits.
        """
        ...

    def curriculum_statistics(self) -> Tensor:
        """Return (K,) what curricula decide from, counted since the last decision; additive over ranks."""
        ...

    def decide_curriculum(self, statistics: Tensor) -> None:
        """Let curricula decide from (K,) `statistics`, between two iterations, and count anew."""
        ...

    def curriculum_levels(self) -> CurriculumLevels:
        """Return how far curricula have come, for the logs."""
        ...

    def curriculum_state_dict(self) -> dict[str, Any]:
        """What curricula have decided for all environments: tensors by name."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue bit for bit on the CPU: tensors, numbers and strings only."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, of the same task and number of environments.

        Raises:
            CheckpointError: the state is of another task or size.
        """
        ...

    def progress_state_dict(self) -> dict[str, Any]:
        """How far training is (step count, curricula): the part of the state that does not depend on `num_envs`."""
        ...

    def load_progress_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `reset` start environments at that point of training.

        Raises:
            CheckpointError: the state is of another task.
        """
        ...

    def close(self) -> None:
        """Release threads and device memory."""
        ...
