"""Action terms: how policy actions become actuator inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import mujoco
import torch
from torch import Tensor

from hpclab.envs.spec import ActionMeaning

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


class JointPosition:
    """Position targets: default + scale * action - encoder bias, one action per joint, not clipped.

    The bias is subtracted because a real controller compares the target with what the encoder reports.
    """

    def __init__(self, env: ManagerEnv, *, scale: Callable[[mujoco.MjModel], Sequence[float]]) -> None:
        """Read the scale [rad or m per unit action] of each joint from the model."""
        model = env.sim.model
        self._env = env
        self._ctrl = env.sim.ctrl
        self._scale = torch.tensor(scale(model), dtype=torch.float32, device=env.device)
        self.num_actions = len(env.joints.names)
        self._actuators = actuators = env.joints.actuators(model)
        joint_of_actuator = sorted(range(len(actuators)), key=actuators.__getitem__)
        self._joint_of_actuator = torch.tensor(joint_of_actuator, device=env.device)

    def apply(self, actions: Tensor) -> None:
        """Write the targets of (N, J) actions, in the order of the joints."""
        joints = self._env.joints
        targets = torch.addcmul(joints.default_pos - joints.encoder_bias, actions, self._scale)
        torch.index_select(targets, 1, self._joint_of_actuator, out=self._ctrl)

    def meaning(self) -> ActionMeaning:
        """Return what actions ask for, with the gains of the model's servos."""
        model, joints = self._env.sim.model, self._env.joints
        return ActionMeaning(
            quantity="position",
            names=joints.names,
            scale=tuple(self._scale.tolist()),
            offset=tuple(joints.default_pos.tolist()),
            stiffness=tuple(model.actuator_gainprm[self._actuators, 0].tolist()),
            damping=tuple((-model.actuator_biasprm[self._actuators, 2]).tolist()),
        )


class Effort:
    """Motor efforts: the action clipped to ±1, times each actuator's gear as the model has it."""

    def __init__(self, env: ManagerEnv) -> None:
        self._model = env.sim.model
        self._ctrl = env.sim.ctrl
        self.num_actions = int(self._model.nu)

    def apply(self, actions: Tensor) -> None:
        """Write the (N, A) efforts, in the order of the actuators."""
        torch.clamp(actions, -1.0, 1.0, out=self._ctrl)

    def meaning(self) -> ActionMeaning:
        """Return what actions ask for, by actuator."""
        return ActionMeaning(
            quantity="effort",
            names=tuple(str(self._model.actuator(index).name) for index in range(self.num_actions)),
            scale=tuple(self._model.actuator_gear[:, 0].tolist()),
            offset=(0.0,) * self.num_actions,
            clip=(-1.0, 1.0),
        )
