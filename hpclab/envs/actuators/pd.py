"""A proportional-derivative drive with an effort limit, and one whose torque falls with speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hpclab.envs.actuators.actuator import Drive
from hpclab.envs.robots.legged import by_joint

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

PerJoint = float | Mapping[str, float]
"""One number for all joints, or numbers by joint name pattern."""
Range = tuple[float, float]


class PD:
    """stiffness * (target - position) + damping * (target - velocity) + effort target, cut to the effort limit.

    Attributes:
        stiffness, damping: (N, J), of each environment for the whole training [N m/rad, N m s/rad or N/m, N s/m].
        nominal_stiffness, nominal_damping: (J,) as given, before the factors drawn.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        stiffness: PerJoint,
        damping: PerJoint,
        effort_limit: PerJoint,
        stiffness_scale: Range = (1.0, 1.0),
        damping_scale: Range = (1.0, 1.0),
    ) -> None:
        """Give gains and limits; `..._scale` are the bounds of a factor drawn for each environment and joint."""
        joints = len(env.joints.names)
        self.stiffness = env.buffers.per_env("actuator/stiffness", joints)
        self.damping = env.buffers.per_env("actuator/damping", joints)
        self.nominal_stiffness, self.nominal_damping = per_joint(env, stiffness), per_joint(env, damping)
        self.stiffness.uniform_(*stiffness_scale).mul_(self.nominal_stiffness)
        self.damping.uniform_(*damping_scale).mul_(self.nominal_damping)
        self.effort_limit = per_joint(env, effort_limit)

    def effort(self, drive: Drive) -> Tensor:
        """Return the (N, J) efforts."""
        return torch.clamp(self.unlimited(drive), -self.effort_limit, self.effort_limit)

    def unlimited(self, drive: Drive) -> Tensor:
        """Return the (N, J) efforts before any limit."""
        proportional = self.stiffness * (drive.position_target - drive.position)
        derivative = self.damping * (drive.velocity_target - drive.velocity)
        return proportional + derivative + drive.effort_target


class DCMotor(PD):
    """A PD drive whose torque in the direction of motion falls linearly from stall to the no-load speed.

    Source: the torque-speed line of a direct-current motor, limited by the drive's current, as in Isaac Lab's DCMotor.
    """

    def __init__(
        self, env: ManagerEnv, *, stall_effort: PerJoint, no_load_velocity: PerJoint, effort_limit: PerJoint, **pd: Any
    ) -> None:
        """Give the ends of the line [N m, rad/s or N, m/s], and what `PD` wants."""
        super().__init__(env, effort_limit=effort_limit, **pd)
        self._stall = per_joint(env, stall_effort)
        self._no_load_velocity = per_joint(env, no_load_velocity)

    def effort(self, drive: Drive) -> Tensor:
        """Return the (N, J) efforts."""
        speed = drive.velocity / self._no_load_velocity
        highest = (self._stall * (1.0 - speed)).clamp(min=0.0).minimum(self.effort_limit)
        lowest = (self._stall * (-1.0 - speed)).clamp(max=0.0).maximum(-self.effort_limit)
        return self.unlimited(drive).clamp(lowest, highest)


def per_joint(env: ManagerEnv, value: PerJoint) -> Tensor:
    """Return (J,) values.

    Raises:
        ValueError: a joint does not match exactly one pattern.
    """
    names = env.joints.names
    values = by_joint(value, names) if isinstance(value, Mapping) else (float(value),) * len(names)
    return torch.tensor(values, device=env.device)
