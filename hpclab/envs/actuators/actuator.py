"""What every actuator model has."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Drive(NamedTuple):
    """Targets and measurements of all drives, (N, J) each [rad or m, and per second; N m or N]."""

    position_target: Tensor
    velocity_target: Tensor
    effort_target: Tensor
    position: Tensor
    """As the encoders report it, bias included."""
    velocity: Tensor


class Actuator(Protocol):
    """A model of all drives of a robot, built as `func(env, **params)`."""

    def effort(self, drive: Drive) -> Tensor:
        """Return the (N, J) efforts on the joints [N m or N]; called once before each physics substep."""
        ...
