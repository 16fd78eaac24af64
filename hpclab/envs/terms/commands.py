"""Command terms: what the policy is asked to do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.terms.rotations import yaw

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

# Columns of what is drawn anew at each resampling; the ranges of the first three may be widened by a curriculum.
_VELOCITY, _HEADING, _TIME_LEFT = slice(0, 3), 3, 4
_FOLLOWS_HEADING, _STANDS, _FORWARD_ONLY = 5, 6, 7
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
        self._quat = env.sim.qpos[:, 3:7]
        self._step_dt = env.step_dt
        self._shares = (follow_heading, standing, forward_only)
        self._heading_stiffness = heading_stiffness
        self._min_forward = min_forward
        self._active_speed = active_speed
        per_column = torch.tensor([vx, vy, yaw_rate, heading, resample_s, (0, 1), (0, 1), (0, 1)], dtype=torch.float32)
        self._limits = env.buffers.shared(f"{name}/limits", 2, _WIDTH)
        self._limits.copy_(per_column.t())
        self.ranges = self._limits[:, _VELOCITY]
        self._drawn = env.buffers.per_env(f"{name}/drawn", _WIDTH)
        self._twist = env.buffers.per_env(f"{name}/twist", 5)
        self.linear, self.angular = self._twist[:, 0:3], self._twist[:, 2:5]
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
        self._drawn[:, _FOLLOWS_HEADING:] = _NEVER
        self._evaluate()

    def _evaluate(self) -> None:
        follow_heading, standing, forward_only = self._shares
        drawn, value = self._drawn, self.value
        forward = drawn[:, _FORWARD_ONLY] < forward_only
        follows = (drawn[:, _FOLLOWS_HEADING] < follow_heading) & ~forward
        value.copy_(drawn[:, _VELOCITY])
        ahead = value[:, 0].abs().clamp_(min=self._min_forward)
        value[:, 1:].masked_fill_(forward[:, None], 0.0)
        value[:, 0].copy_(torch.where(forward, ahead, value[:, 0]))
        error = drawn[:, _HEADING] - yaw(self._quat)
        error = torch.remainder(error + math.pi, 2 * math.pi) - math.pi
        rate = torch.clamp(self._heading_stiffness * error, self._limits[0, 2], self._limits[1, 2])
        value[:, 2].copy_(torch.where(follows, rate, value[:, 2]))
        value.masked_fill_((drawn[:, _STANDS] < standing)[:, None], 0.0)
        self._twist[:, :2].copy_(value[:, :2])
        self._twist[:, 4].copy_(value[:, 2])
        torch.add(value[:, :2].norm(dim=1), value[:, 2].abs(), out=self.speed)
        self.active.copy_(self.speed > self._active_speed)
