"""Reward terms of locomotion, each (N,) per control step, before weight and step length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant
from hpclab.envs.robots.legged import by_joint
from hpclab.envs.terms.commands import VelocityCommand
from hpclab.envs.terms.sensors import side_by_side
from hpclab.envs.terms.trackers import Contacts

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def track_linear_velocity(env: ManagerEnv, *, command: str, velocity: str, variance: float) -> Tensor:
    """exp(-norm(commanded - actual)^2 / variance) of the body-frame linear velocity, vertical command 0 [m^2/s^2]."""
    error = env.commands[command].linear - env.sensor(velocity)
    return torch.exp((error * error).sum(dim=1) * constant(-1.0 / variance, env.device))


def track_angular_velocity(env: ManagerEnv, *, command: str, velocity: str, variance: float) -> Tensor:
    """exp(-norm(commanded - actual)^2 / variance) of the body-frame angular velocity, roll, pitch 0 [rad^2/s^2]."""
    error = env.commands[command].angular - env.sensor(velocity)
    return torch.exp((error * error).sum(dim=1) * constant(-1.0 / variance, env.device))


def upright(env: ManagerEnv, *, up: str, variance: float) -> Tensor:
    """exp(-norm(g_xy)^2 / variance), g the direction of gravity in the frame of the body that senses `up`."""
    return torch.exp(horizontal_sum_of_squares(env, sensor=up) * constant(-1.0 / variance, env.device))


def horizontal_sum_of_squares(env: ManagerEnv, *, sensor: str) -> Tensor:
    """Sum of squares of a sensor's x and y."""
    xy = env.sensor(sensor).narrow(1, 0, 2)
    return (xy * xy).sum(dim=1)


def sum_of_squares(env: ManagerEnv, *, sensor: str) -> Tensor:
    """Sum of squares of a sensor."""
    values = env.sensor(sensor)
    return (values * values).sum(dim=1)


def action_rate_l2(env: ManagerEnv) -> Tensor:
    """norm(a_t - a_(t-1))^2 of the raw actions."""
    change = env.actions - env.previous_actions
    return (change * change).sum(dim=1)


def tracked_count(env: ManagerEnv, *, tracker: str) -> Tensor:
    """The count of a `SubstepsWithForce`."""
    count: Tensor = env.trackers[tracker].count
    return count


class JointPosLimits:
    """Sum over joints of how far each is outside its soft limits: its range times `soft_factor`, about the centre."""

    def __init__(self, env: ManagerEnv, *, soft_factor: float) -> None:
        self._pos = env.joints.pos
        self._lower, self._upper = env.joints.soft_limits(soft_factor)
        self._zero = constant(0.0, env.device)

    def __call__(self) -> Tensor:
        """Return the violation [rad]."""
        beyond = torch.maximum(self._lower - self._pos, self._pos - self._upper)
        return torch.maximum(beyond, self._zero).sum(dim=1)


class Pose:
    """exp(-mean((q - q_default)^2 / std^2)), with deviations std by commanded speed and joint."""

    def __init__(
        self, env: ManagerEnv, *, command: str, std: Sequence[Mapping[str, float]], from_speed: Sequence[float]
    ) -> None:
        """Give one table (joint name pattern to std [rad]) per speed class, and where each but the first starts.

        Raises:
            ValueError: a joint does not match exactly one pattern of a table.
        """
        self._joints = env.joints
        self._command: VelocityCommand = env.commands[command]
        rows = [by_joint(table, env.joints.names) for table in std]
        self._exponents = torch.tensor(rows, device=env.device).square().reciprocal() / -len(env.joints.names)
        self._from_speed = torch.tensor(from_speed, device=env.device)

    def __call__(self) -> Tensor:
        """Return the (N,) reward."""
        speed_class = torch.bucketize(self._command.speed, self._from_speed, right=True)
        difference = self._joints.pos - self._joints.default_pos
        return torch.exp((difference.mul_(difference) * self._exponents.index_select(0, speed_class)).sum(dim=1))


def _active(env: ManagerEnv, command: str) -> Tensor:
    active: Tensor = env.commands[command].active
    return active


def air_time(env: ManagerEnv, *, contacts: str, command: str, range_s: tuple[float, float]) -> Tensor:
    """Number of feet whose air time is within a range, when the command is active."""
    feet: Contacts = env.trackers[contacts]
    time = feet.air_time
    within = (time > range_s[0]) & (time < range_s[1])
    return within.sum(dim=1) * _active(env, command)


class FootClearance:
    """Sum over feet of abs(height - target) * norm(v_xy) [m^2/s], when the command is active."""

    def __init__(
        self, env: ManagerEnv, *, heights: str, command: str, velocities: Sequence[str], target_m: float
    ) -> None:
        self._height: Tensor = env.trackers[heights].height
        self._command: VelocityCommand = env.commands[command]
        velocity = side_by_side(env, velocities)
        self._vx, self._vy = velocity[:, :, 0], velocity[:, :, 1]
        self._target_m = constant(target_m, env.device)

    def __call__(self) -> Tensor:
        """Return the (N,) cost."""
        speed = torch.hypot(self._vx, self._vy)
        return ((self._height - self._target_m).abs_() * speed).sum(dim=1) * self._command.active


class FootSlip:
    """Sum over feet in contact of norm(v_xy)^2 [m^2/s^2], when the command is active."""

    def __init__(self, env: ManagerEnv, *, contacts: str, command: str, velocities: Sequence[str]) -> None:
        self._contacts: Contacts = env.trackers[contacts]
        self._command: VelocityCommand = env.commands[command]
        self._velocity = side_by_side(env, velocities)[:, :, :2]
        self._zero = constant(0.0, env.device)

    def __call__(self) -> Tensor:
        """Return the (N,) cost."""
        squared = (self._velocity * self._velocity).sum(dim=2)
        return torch.where(self._contacts.in_contact, squared, self._zero).sum(dim=1) * self._command.active


class FootSwingHeight:
    """Sum over landing feet of (peak height / target - 1)^2, when the command is active.

    The peak is the largest height in control steps without contact since the last landing; an episode's end does
    not clear it.
    """

    def __init__(self, env: ManagerEnv, *, heights: str, contacts: str, command: str, target_m: float) -> None:
        self._height: Tensor = env.trackers[heights].height
        self._contacts: Contacts = env.trackers[contacts]
        self._command: VelocityCommand = env.commands[command]
        self._per_target, self._one, self._zero = (constant(value, env.device) for value in (1.0 / target_m, 1.0, 0.0))
        self._peak = env.buffers.per_env(f"{contacts}/peak_height_m", self._height.shape[1])

    def __call__(self) -> Tensor:
        """Return the (N,) cost."""
        # In contact the height counts for nothing: the floor of the maximum is the peak itself.
        in_air = torch.where(self._contacts.in_contact, self._peak, self._height)
        torch.maximum(self._peak, in_air, out=self._peak)
        landed = self._contacts.first_contact
        error = (self._peak * self._per_target).sub_(self._one)
        cost = torch.where(landed, error.mul_(error), self._zero).sum(dim=1) * self._command.active
        self._peak.masked_fill_(landed, 0.0)
        return cost


def soft_landing(env: ManagerEnv, *, contacts: str, command: str) -> Tensor:
    """Sum over landing feet of the norm of the contact force [N], when the command is active."""
    tracker: Contacts = env.trackers[contacts]
    force = torch.linalg.vector_norm(tracker.force, dim=2)
    return torch.where(tracker.first_contact, force, constant(0.0, env.device)).sum(dim=1) * _active(env, command)
