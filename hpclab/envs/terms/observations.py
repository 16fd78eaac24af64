"""Observation terms, each (N, dim)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def sensor(env: ManagerEnv, *, name: str) -> Tensor:
    """The values of one sensor, in its unit."""
    return env.sensor(name)


def projected_gravity(env: ManagerEnv, *, up: str) -> Tensor:
    """The direction of gravity in a body's frame, from the sensor `up` of the world's z axis in that frame."""
    return -env.sensor(up)


def joint_pos(env: ManagerEnv) -> Tensor:
    """Joint positions relative to the default pose [rad]."""
    return env.joints.pos - env.joints.default_pos


def encoder_joint_pos(env: ManagerEnv) -> Tensor:
    """Joint positions relative to the default pose as the encoders report them, bias included [rad]."""
    return env.joints.pos - env.joints.default_pos + env.joints.encoder_bias


def joint_vel(env: ManagerEnv) -> Tensor:
    """Joint velocities [rad/s]."""
    return env.joints.vel


def last_action(env: ManagerEnv) -> Tensor:
    """The raw action of the last control step; 0 after a reset."""
    return env.actions


def command(env: ManagerEnv, *, name: str) -> Tensor:
    """The command in force."""
    value: Tensor = env.commands[name].value
    return value


def foot_height(env: ManagerEnv, *, heights: str) -> Tensor:
    """Height of each foot above the ground [m]."""
    value: Tensor = env.trackers[heights].height
    return value


def foot_air_time(env: ManagerEnv, *, contacts: str) -> Tensor:
    """Time since each foot left the ground, 0 in contact [s]."""
    value: Tensor = env.trackers[contacts].air_time
    return value


def foot_contact(env: ManagerEnv, *, contacts: str) -> Tensor:
    """1 where a foot touches the ground, else 0."""
    value: Tensor = env.trackers[contacts].in_contact
    return value.float()


def foot_contact_force(env: ManagerEnv, *, contacts: str) -> Tensor:
    """Force of each foot on the ground, (N, 3 * feet), compressed as sign(f) * log1p(abs(f)), f in [N]."""
    force: Tensor = env.trackers[contacts].force
    return force.abs().log1p_().copysign_(force).flatten(1)
