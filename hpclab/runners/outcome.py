"""How a runner's loop ended. No torch here: launchers read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended without failing; the same on every rank."""

    kind: Literal["completed", "stopped"]
    """completed: the run has all its iterations. stopped: it was asked to stop, and saved."""
    iteration: int
    """The next iteration to run; so also the number of iterations done."""
    env_steps: int
    """Environment steps done, over all ranks and attempts."""
