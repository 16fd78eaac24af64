"""Motions from tables of poses, such as motion capture gives after retargeting."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from hpclab.envs.motions.motion import FPS, Motion
from hpclab.envs.robots.legged import TERRAIN

Doubles = NDArray[np.float64]


def motion_from_table(model: mujoco.MjModel, table: Doubles, *, fps: float = 30.0) -> Motion:
    """Resample a table of poses to one frame per control step and let the model compute the bodies.

    Positions are interpolated linearly, orientations spherically. Velocities are central differences; the first and the
    last angular velocity of the root repeat their neighbours.

    Args:
        model: the robot, its free joint first.
        table: (rows, 7 + J): root position [m], root quaternion x, y, z, w, joint positions [rad].
        fps: rows per second.
    """
    times = np.arange(0, (len(table) - 1) / fps + 1e-9, 1 / FPS)
    place = np.clip(times * fps, 0, len(table) - 1)
    first = np.minimum(place.astype(np.int64), len(table) - 2)
    share = place - first
    linear = table[first] + share[:, None] * (table[first + 1] - table[first])
    quaternions = table[:, [6, 3, 4, 5]]
    root_quat = np.array([_slerp(quaternions[i], quaternions[i + 1], t) for i, t in zip(first, share, strict=True)])
    root_pos, joints = linear[:, :3], linear[:, 7:]
    root_vel, joint_vel = np.gradient(root_pos, 1 / FPS, axis=0), np.gradient(joints, 1 / FPS, axis=0)
    turns = [_turn(root_quat[i - 1], root_quat[i + 1]) * FPS / 2 for i in range(1, len(times) - 1)]
    root_turn = np.array([turns[0], *turns, turns[-1]])
    bodies = [i for i in range(1, model.nbody) if model.body(i).name != TERRAIN]
    data = mujoco.MjData(model)
    poses = np.zeros((len(times), len(bodies), 7))
    velocities = np.zeros((len(times), len(bodies), 6))
    for k in range(len(times)):
        data.qpos[:] = [*root_pos[k], *root_quat[k], *joints[k]]
        turn = np.zeros(3)
        mujoco.mju_rotVecQuat(turn, root_turn[k], [root_quat[k][0], *-root_quat[k][1:]])
        data.qvel[:] = [*root_vel[k], *turn, *joint_vel[k]]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        for b, body in enumerate(bodies):
            poses[k, b] = [*data.xpos[body], *data.xquat[body]]
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocities[k, b], 0)
    arrays = (joints, joint_vel, poses[..., :3], poses[..., 3:], velocities[..., 3:], velocities[..., :3])
    return Motion(*(array.astype(np.float32) for array in arrays))


def _slerp(a: Doubles, b: Doubles, share: float) -> Doubles:
    if a @ b < 0:
        b = -b
    turn = np.zeros(3)
    mujoco.mju_subQuat(turn, b, a)
    result: Doubles = a.copy()
    mujoco.mju_quatIntegrate(result, turn, share)
    return result


def _turn(a: Doubles, b: Doubles) -> Doubles:
    """Return the rotation vector from `a` to `b` in the world [rad]."""
    difference, inverse = np.zeros(4), np.array([a[0], *-a[1:]])
    mujoco.mju_mulQuat(difference, b, inverse)
    vector = np.zeros(3)
    mujoco.mju_quat2Vel(vector, difference, 1.0)
    return vector
