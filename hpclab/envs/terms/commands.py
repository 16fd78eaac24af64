"""Command terms: what the policy is asked to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant

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
        self._step_dt, self._zero = constant(env.step_dt, env.device), constant(0.0, env.device)
        self._half_turn, self._turn = constant(math.pi, env.device), constant(2 * math.pi, env.device)
        self._shares = torch.tensor([follow_heading, standing, forward_only], device=env.device)
        self._slowest_ahead = torch.tensor([min_forward, 0.0, 0.0], device=env.device)
        self._ahead_only = torch.tensor([1.0, 0.0, 0.0], device=env.device)
        self._linear_part = torch.tensor([1.0, 1.0, 0.0], device=env.device)
        self._heading_stiffness = constant(heading_stiffness, env.device)
        self._active_speed = constant(active_speed, env.device)
        per_column = torch.tensor([vx, vy, yaw_rate, heading, resample_s, (0, 1), (0, 1), (0, 1)], dtype=torch.float32)
        self._limits = env.buffers.shared(f"{name}/limits", 2, _WIDTH)
        self._limits.copy_(per_column.t())
        self.ranges = self._limits[:, _VELOCITY]
        self._lower, self._upper = self._limits
        self._slowest_rate, self._fastest_rate = self.ranges[:, 2]
        self._drawn = env.buffers.per_env(f"{name}/drawn", _WIDTH)
        self._velocity, self._flags = self._drawn[:, _VELOCITY], self._drawn[:, _FLAGS]
        self._heading, self._time_left = self._drawn[:, _HEADING], self._drawn[:, _TIME_LEFT]
        self.linear = env.buffers.per_env(f"{name}/linear", 3)
        self.angular = env.buffers.per_env(f"{name}/angular", 3)
        self.value = env.buffers.per_env(f"{name}/value", 3)
        self._vx, self._vy, self._rate = self.value.unbind(dim=1)
        self.speed = env.buffers.per_env(f"{name}/speed")
        self.active = env.buffers.per_env(f"{name}/active")

    def update(self, fresh: Tensor) -> None:
        """Let one control step pass, except in environments of `fresh` (N,), which get a new command at once."""
        self._time_left.sub_(self._step_dt)
        due = (self._time_left <= self._zero) | fresh
        drawn = torch.addcmul(self._lower, torch.empty_like(self._drawn).uniform_(), self._upper - self._lower)
        torch.where(due.unsqueeze(1), drawn, self._drawn, out=self._drawn)
        self._evaluate()

    def hold(self, value: Tensor) -> None:
        """Ask every environment for (N, 3) `value` from now on, until its next reset."""
        self._velocity.copy_(value)
        self._time_left.fill_(torch.inf)
        self._flags.fill_(_NEVER)
        self._evaluate()

    def _evaluate(self) -> None:
        follows, stands, forward = (self._flags < self._shares).unbind(dim=1)
        ahead = torch.maximum(self._velocity.abs().mul_(self._ahead_only), self._slowest_ahead)
        torch.where(forward.unsqueeze(1), ahead, self._velocity, out=self.value)
        error = self._heading - torch.atan2(self._axis_y, self._axis_x)
        error = error.add_(self._half_turn).remainder_(self._turn).sub_(self._half_turn)
        rate = error.mul_(self._heading_stiffness).clamp_(self._slowest_rate, self._fastest_rate)
        torch.where(follows > forward, rate, self._rate, out=self._rate)
        self.value.masked_fill_(stands.unsqueeze(1), 0.0)
        torch.mul(self.value, self._linear_part, out=self.linear)
        torch.sub(self.value, self.linear, out=self.angular)
        torch.add(torch.hypot(self._vx, self._vy), self._rate.abs(), out=self.speed)
        torch.gt(self.speed, self._active_speed, out=self.active)
