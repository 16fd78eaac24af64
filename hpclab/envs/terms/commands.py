"""Command terms: what the policy is asked to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

# Columns of what is drawn anew at each resampling; the ranges of the first three may be widened by a curriculum.
_VELOCITY, _HEADING, _TIME_LEFT = slice(0, 3), 3, 4
_FLAGS = slice(5, 8)  # follows the heading, stands, walks forward only
_WIDTH = 8
_NEVER = 2.0
"""A draw above every share."""


class VelocityCommand:
    """A planar velocity in the body frame: (vx, vy) [m/s] and yaw rate [rad/s], redrawn at random times.

    A share of the environments stands still; another follows a heading, its yaw rate proportional to the error and
    clipped to the yaw rate's range; another only walks forward, at `min_forward` or faster. Each is drawn
    independently; standing wins over all, walking forward wins over following a heading.

    Attributes:
        value: (N, 3) vx, vy, yaw rate.
        linear, angular: (N, 3) the velocities asked for with the components that must be 0: (vx, vy, 0), (0, 0, yaw).
        speed: (N,) norm(vx, vy) + abs(yaw rate).
        active: (N,) float, 1 where `speed` exceeds `active_speed`, else 0.
        ranges: (2, 3) lower and upper ends of vx, vy and yaw rate.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        forward_axis: str,
        vx: tuple[float, float],
        vy: tuple[float, float],
        yaw_rate: tuple[float, float],
        heading: tuple[float, float] = (-math.pi, math.pi),
        resample_s: tuple[float, float],
        standing: float = 0.0,
        follow_heading: float = 0.0,
        heading_stiffness: float = 0.5,
        forward_only: float = 0.0,
        min_forward: float = 0.3,
        active_speed: float = 0.05,
    ) -> None:
        """Name the sensor of the body's x axis in the world; ranges in [m/s], [rad/s], [rad], [s]; shares in 0..1."""
        forward = env.sensor(forward_axis)
        self._axis_x, self._axis_y = forward[:, 0], forward[:, 1]
        self._step_dt = env.step_dt
        self._shares = torch.tensor([follow_heading, standing, forward_only], device=env.device)
        self._slowest_ahead = torch.tensor([min_forward, 0.0, 0.0], device=env.device)
        self._ahead_only = torch.tensor([1.0, 0.0, 0.0], device=env.device)
        self._linear_part = torch.tensor([1.0, 1.0, 0.0], device=env.device)
        self._heading_stiffness = heading_stiffness
        self._active_speed = active_speed
        per_column = torch.tensor([vx, vy, yaw_rate, heading, resample_s, (0, 1), (0, 1), (0, 1)], dtype=torch.float32)
        self._limits = env.buffers.shared(f"{name}/limits", 2, _WIDTH)
        self._limits.copy_(per_column.t())
        self.ranges = self._limits[:, _VELOCITY]
        self._drawn = env.buffers.per_env(f"{name}/drawn", _WIDTH)
        self.linear = env.buffers.per_env(f"{name}/linear", 3)
        self.angular = env.buffers.per_env(f"{name}/angular", 3)
        self.value = env.buffers.per_env(f"{name}/value", 3)
        self.speed = env.buffers.per_env(f"{name}/speed")
        self.active = env.buffers.per_env(f"{name}/active")

    def update(self, fresh: Tensor) -> None:
        """Let one control step pass, except in environments of `fresh` (N,), which get a new command at once."""
        time_left = self._drawn[:, _TIME_LEFT]
        time_left.sub_(self._step_dt)
        due = (time_left <= 0) | fresh
        lower, upper = self._limits
        drawn = torch.addcmul(lower, torch.rand_like(self._drawn), upper - lower)
        torch.where(due[:, None], drawn, self._drawn, out=self._drawn)
        self._evaluate()

    def hold(self, value: Tensor) -> None:
        """Ask every environment for (N, 3) `value` from now on, until its next reset."""
        self._drawn[:, _VELOCITY] = value
        self._drawn[:, _TIME_LEFT] = torch.inf
        self._drawn[:, _FLAGS] = _NEVER
        self._evaluate()

    def _evaluate(self) -> None:
        velocity = self._drawn[:, _VELOCITY]
        follows, stands, forward = (self._drawn[:, _FLAGS] < self._shares).unbind(dim=1)
        ahead = torch.maximum(velocity.abs().mul_(self._ahead_only), self._slowest_ahead)
        torch.where(forward[:, None], ahead, velocity, out=self.value)
        error = self._drawn[:, _HEADING] - torch.atan2(self._axis_y, self._axis_x)
        error = torch.remainder(error.add_(math.pi), 2 * math.pi).sub_(math.pi)
        rate = torch.clamp(error.mul_(self._heading_stiffness), self._limits[0, 2], self._limits[1, 2])
        rate_in_force = self.value[:, 2]
        rate_in_force.copy_(torch.where(follows > forward, rate, rate_in_force))
        self.value.masked_fill_(stands[:, None], 0.0)
        torch.mul(self.value, self._linear_part, out=self.linear)
        torch.sub(self.value, self.linear, out=self.angular)
        torch.add(torch.hypot(self.value[:, 0], self.value[:, 1]), rate_in_force.abs(), out=self.speed)
        torch.gt(self.speed, self._active_speed, out=self.active)
