"""Mirror images of robots, by their joints' names and axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch
from torch import Tensor

from hpclab.envs.joints import default_qpos
from hpclab.envs.mirror import Mirror, Reflection, ReflectTensor, TaskMirror
from hpclab.errors import ConfigError

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

POLAR = Reflection.signs(1.0, -1.0, 1.0)
"""A position, velocity or force: x forward, y to the left, z up."""
AXIAL = Reflection.signs(-1.0, 1.0, -1.0)
"""An angular velocity or a torque."""
TURN = Reflection.signs(1.0, -1.0, -1.0, 1.0, 1.0, -1.0)
"""The first two columns of a rotation matrix, row by row: an entry changes its sign for each of its axes that is y."""
_SAME_AXIS = 0.999
_SAME_ANGLE = 1e-4


def joint_reflection(env: ManagerEnv, sides: Sequence[tuple[str, str]]) -> Reflection:
    """Return the reflection of joint positions about the default pose, velocities and actions of one robot.

    A joint trades places with the one on the other side. Its sign follows from their axes in the default pose, in which
    the robot looks along x: the mirror image of a rotation about (x, y, z) is one about (-x, y, -z).

    Args:
        env: of the robot.
        sides: what names of joints begin with, left and right; other joints are their own counterparts.

    Raises:
        ValueError: a counterpart is missing, or its axis is not the mirrored one.
    """
    model = env.sim.model
    data = mujoco.MjData(model)
    data.qpos[:] = default_qpos(model)
    mujoco.mj_kinematics(model, data)
    names = env.joints.names
    source, signs = [], []
    for name in names:
        other = _counterpart(name, sides)
        if other not in names:
            raise ValueError(f"{name} has no counterpart {other} in the mirror")
        mirrored = data.joint(name).xaxis * np.array([-1.0, 1.0, -1.0])
        along = float(mirrored @ data.joint(other).xaxis)
        if abs(along) < _SAME_AXIS:
            raise ValueError(f"the axes of {name} and {other} are no mirror images of each other")
        source.append(names.index(other))
        signs.append(float(np.sign(along)))
    return Reflection(tuple(source), tuple(signs))


def _counterpart(name: str, sides: Sequence[tuple[str, str]]) -> str:
    for left, right in sides:
        if name.startswith(left):
            return right + name.removeprefix(left)
        if name.startswith(right):
            return left + name.removeprefix(right)
    return name


def legged_robot(env: ManagerEnv, *, sides: Sequence[tuple[str, str]]) -> TaskMirror:
    """Return the mirror image of a velocity task's terms; feet are observed in pairs of two sides.

    Args:
        env: of the robot.
        sides: what names of left and right joints begin with, one pair for each pair of feet.
    """
    joints, pairs = joint_reflection(env, sides), len(sides)
    each_foot = Reflection.swap(pairs, 1.0)
    terms: Mapping[str, Reflection] = {
        "base_lin_vel": POLAR,
        "base_ang_vel": AXIAL,
        "projected_gravity": POLAR,
        "joint_pos": joints,
        "joint_vel": joints,
        "actions": joints,
        "command": Reflection.signs(1.0, -1.0, -1.0),
        "foot_height": each_foot,
        "foot_air_time": each_foot,
        "foot_contact": each_foot,
        "foot_contact_forces": Reflection.swap(pairs, *POLAR.sign),
    }
    return TaskMirror(terms, actions=joints)


def tracking_robot(env: ManagerEnv, *, sides: Sequence[tuple[str, str]], bodies: Sequence[str]) -> TaskMirror:
    """Return the mirror image of a tracking task's terms: the robot in the mirror follows the mirrored motion.

    Args:
        env: of the robot.
        sides: what names of joints and bodies begin with, left and right; others are their own counterparts.
        bodies: that are followed, in their order; frames of counterparts are mirror images of each other.

    Raises:
        ValueError: a counterpart is missing, or the default pose is no mirror image of itself, so that a motion's joint
            positions, which are not counted from it, have no image either.
    """
    joints = joint_reflection(env, sides)
    default = env.joints.default_pos
    if not torch.allclose(joints.on(env.device)(default), default, atol=_SAME_ANGLE):
        raise ValueError("the default pose is no mirror image of itself")
    counterparts = [bodies.index(_counterpart(body, sides)) for body in bodies]
    terms: Mapping[str, Reflection] = {
        "command": joints.repeated(2),
        "motion_anchor_pos": POLAR,
        "motion_anchor_ori": TURN,
        "body_pos": Reflection.blocks(counterparts, *POLAR.sign),
        "body_ori": Reflection.blocks(counterparts, *TURN.sign),
        "base_lin_vel": POLAR,
        "base_ang_vel": AXIAL,
        "joint_pos": joints,
        "joint_vel": joints,
        "actions": joints,
    }
    return TaskMirror(terms, actions=joints)


def mirrored_state(env: ManagerEnv, joints: ReflectTensor, qpos: Tensor, qvel: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (N, nq) and (N, nv) mirror images of states of a robot with a free root, about the world's x-z plane.

    Args:
        env: of the robot.
        joints: the reflection of its joints, as `joint_reflection` returns it.
        qpos: (N, nq) positions.
        qvel: (N, nv) velocities.
    """
    polar, axial = POLAR.on(env.device), AXIAL.on(env.device)
    default = env.joints.default_pos
    position, turn, angles = qpos[:, :3], qpos[:, 3:7], qpos[:, 7:]
    positions = [polar(position), turn[:, :1], axial(turn[:, 1:]), default + joints(angles - default)]
    velocities = [polar(qvel[:, :3]), axial(qvel[:, 3:6]), joints(qvel[:, 6:])]
    return torch.cat(positions, dim=1), torch.cat(velocities, dim=1)


def mirror_of(env: ManagerEnv) -> Mirror | None:
    """Return the mirror images of an environment's observation groups and actions, where its task has them.

    Raises:
        ConfigError: the task leaves out an observation term.
    """
    if env.task.mirror is None:
        return None
    task = env.task.mirror(env)
    groups = {}
    for group, terms in env.observations.slices.items():
        parts = []
        for name, columns in terms.items():
            if name not in task.observations:
                raise ConfigError(f"algorithm.symmetry: {env.name} does not say what the mirror image of {name} is")
            part = task.observations[name]
            parts.append(part.repeated((columns.stop - columns.start) // len(part)))  # a history repeats the term
        groups[group] = Reflection.joined(parts).on(env.device)
    return Mirror(groups, task.actions.on(env.device))
