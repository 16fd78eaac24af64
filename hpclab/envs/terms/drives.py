"""Actions on drives: targets for MuJoCo's own velocity and effort actuators, and for actuator models.

`actions.JointPosition` and `actions.Effort` are the simplest ones. The models of `hpclab.envs.actuators` need a robot
with one plain motor per joint: `legged.as_motors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import mujoco
import torch
from torch import Tensor

from hpclab.envs.actuators.actuator import Actuator, Drive
from hpclab.envs.actuators.pd import PD
from hpclab.envs.delay import DelayLine
from hpclab.envs.spec import ActionMeaning, Term, meaning_of

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

Scale = float | Callable[[mujoco.MjModel], Sequence[float]]
"""Change of the target by a unit action: one number, or one for each joint, read from the model."""


class JointTargets:
    """Velocity or effort targets of MuJoCo's own actuators: scale * action, one action per joint, not clipped.

    Velocity targets [rad/s or m/s] need `legged.as_velocity_servos`, efforts [N m or N] `legged.as_motors`.
    """

    def __init__(self, env: ManagerEnv, *, scale: Scale) -> None:
        self._env = env
        self._ctrl = env.sim.ctrl
        self._scale = _scale(env, scale)
        self._joint_of_actuator = _joint_of_actuator(env)
        self.num_actions = len(env.joints.names)

    def apply(self, actions: Tensor) -> None:
        """Write the targets of (N, J) actions, in the order of the joints."""
        torch.index_select(actions * self._scale, 1, self._joint_of_actuator, out=self._ctrl)

    def meaning(self) -> ActionMeaning:
        """Return what actions ask for: efforts where all actuators are plain motors."""
        motors = (self._env.sim.model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE).all()
        return ActionMeaning(
            quantity="effort" if motors else "velocity",
            names=self._env.joints.names,
            scale=tuple(self._scale.tolist()),
            offset=(0.0,) * self.num_actions,
        )


class ModelledDrives:
    """Targets of an actuator model: default pose + scale * action for positions, scale * action otherwise.

    The targets that the action does not set are the default pose, velocity 0 and effort 0. With a delay, targets reach
    the drives a number of physics substeps late, drawn within its bounds for each environment and episode.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        target: Literal["position", "velocity", "effort"],
        scale: Scale,
        actuator: Term,
        delay: tuple[int, int] = (0, 0),
    ) -> None:
        """Choose what actions set, and the model, as a term.

        Raises:
            ValueError: an actuator of the robot is not a plain motor.
        """
        model = env.sim.model
        plain = (model.actuator_gainprm[:, 0] == 1) & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE)
        if not plain.all():
            raise ValueError("actuator models need one plain motor per joint; build the robot with legged.as_motors")
        self._joints = env.joints
        self._ctrl = env.sim.ctrl
        self._scale = _scale(env, scale)
        self._joint_of_actuator = _joint_of_actuator(env)
        self.num_actions = len(env.joints.names)
        self._actuator: Actuator = actuator.bind(env)
        self._delay = DelayLine(env, "actuator/delayed", delay, self.num_actions) if delay[1] > 0 else None
        self._kind: Literal["position", "velocity", "effort"] = target
        self._rest = {
            "position": env.joints.default_pos.expand(env.num_envs, -1),
            "velocity": torch.zeros(env.num_envs, self.num_actions, device=env.device),
            "effort": torch.zeros(env.num_envs, self.num_actions, device=env.device),
        }
        self._target = torch.zeros(env.num_envs, self.num_actions, device=env.device)

    def apply(self, actions: Tensor) -> None:
        """Set the targets of (N, J) actions, in the order of the joints."""
        torch.addcmul(self._rest[self._kind], actions, self._scale, out=self._target)

    def before_substep(self) -> None:
        """Write the efforts that the drives give now."""
        target = self._target if self._delay is None else self._delay(self._target)
        targets = self._rest | {self._kind: target}
        measured = self._joints.pos + self._joints.encoder_bias
        drive = Drive(targets["position"], targets["velocity"], targets["effort"], measured, self._joints.vel)
        torch.index_select(self._actuator.effort(drive), 1, self._joint_of_actuator, out=self._ctrl)

    def meaning(self) -> ActionMeaning:
        """Return what actions ask for, with the gains of drives that have some."""
        drives = self._actuator if isinstance(self._actuator, PD) else None
        return ActionMeaning(
            quantity=self._kind,
            names=self._joints.names,
            scale=tuple(self._scale.tolist()),
            offset=tuple(self._rest[self._kind][0].tolist()),
            stiffness=None if drives is None else tuple(drives.nominal_stiffness.tolist()),
            damping=None if drives is None else tuple(drives.nominal_damping.tolist()),
        )


class Delayed:
    """Another action whose actuator inputs arrive late by a number of physics substeps, drawn for each episode."""

    def __init__(self, env: ManagerEnv, *, action: Term, substeps: tuple[int, int]) -> None:
        """Give an action that writes `sim.ctrl` once per control step, and the bounds of its delay."""
        self._action = action.bind(env)
        self._ctrl = env.sim.ctrl
        self._wanted = torch.zeros_like(self._ctrl)
        self._delay = DelayLine(env, "actuator/delayed", substeps, self._ctrl.shape[1])
        self.num_actions: int = self._action.num_actions

    def apply(self, actions: Tensor) -> None:
        """Take in (N, A) actions."""
        self._action.apply(actions)
        self._wanted.copy_(self._ctrl)

    def before_substep(self) -> None:
        """Write the inputs of some substeps ago."""
        self._ctrl.copy_(self._delay(self._wanted))

    def meaning(self) -> ActionMeaning | None:
        """Return what the other action says, where it says something."""
        return meaning_of(self._action)


def _scale(env: ManagerEnv, scale: Scale) -> Tensor:
    values = scale(env.sim.model) if callable(scale) else [scale] * len(env.joints.names)
    return torch.tensor(values, dtype=torch.float32, device=env.device)


def _joint_of_actuator(env: ManagerEnv) -> Tensor:
    actuators = env.joints.actuators(env.sim.model)
    return torch.tensor(sorted(range(len(actuators)), key=actuators.__getitem__), device=env.device)
