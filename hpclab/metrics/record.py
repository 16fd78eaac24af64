"""What one iteration reports, and what takes it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

MEAN_REWARD = "Train/mean_reward"
"""Mean return of each rank's last 100 episodes; absent until one has ended."""
MIN_REWARD = "Train/min_reward"
"""Lowest of the same returns."""
MAX_REWARD = "Train/max_reward"
"""Highest of them."""
MEAN_EPISODE_LENGTH = "Train/mean_episode_length"
"""Mean length of the same episodes [control steps]."""
TOTAL_FPS = "Perf/total_fps"
"""Environment steps of all ranks per second of training."""
COLLECTION_TIME = "Perf/collection_time"
"""Rollout of one iteration: policy, environments, storage [s]."""
LEARNING_TIME = "Perf/learning_time"
"""Returns and update of one iteration [s], divided from the rollout as RSL-RL 5.4.2 does."""
WAIT_MIN = "Perf/wait_min"
"""Shortest wait of a rank at the first collective of one iteration, 0 for the last to arrive [s]."""
WAIT_MEDIAN = "Perf/wait_median"
"""Median over ranks of the same wait [s]; with one rank there are no waits."""
WAIT_MAX = "Perf/wait_max"
"""Longest such wait [s]."""
SLOWEST_RANK = "Perf/slowest_rank"
"""The rank that the others waited for."""
MEAN_STD = "Policy/mean_std"
"""Standard deviation of the policy, averaged over actions [action units]."""
WARNINGS = "Perf/simulation_warnings"
"""How often the simulation reported what should not happen (NaN, full contact buffers); named in the rank logs."""


@dataclass(frozen=True, slots=True)
class Record:
    """The numbers of one iteration."""

    iteration: int
    """From 0, absolute: a resumed run goes on counting."""
    env_steps: int
    """Environment steps so far, over all ranks and attempts, this iteration included."""
    time: float
    """When the iteration ended, Unix time [s]."""
    attempt: int
    values: dict[str, float]
    """By log tag (Train/..., Loss/..., Perf/..., Policy/..., Episode_Reward/..., ...)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as one flat JSON object; a value that is not finite becomes null."""
        numbers = {tag: value if math.isfinite(value) else None for tag, value in self.values.items()}
        head = {"iteration": self.iteration, "env_steps": self.env_steps, "time": self.time, "attempt": self.attempt}
        return head | numbers


class Sink(Protocol):
    """A place where records go: a file, a screen, a service. Rank 0 only."""

    def write(self, record: Record) -> None:
        """Take one iteration's numbers.

        Raises:
            OSError: they could not be stored; training goes on without them.
        """
        ...

    def close(self) -> None: ...
