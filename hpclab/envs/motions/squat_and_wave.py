"""A motion of the G1 that is made here: it stands, squats, rises, waves with its right hand, and stands again."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from hpclab.envs.motions.motion import Motion
from hpclab.envs.motions.table import motion_from_table
from hpclab.envs.robots import g1, legged

_FPS = 30.0
_DURATION_S = 10.0
_SQUAT = {
    r".*_hip_pitch_joint": -0.6,
    r".*_knee_joint": 0.95,
    r".*_ankle_pitch_joint": -0.35,
    r"waist_pitch_joint": 0.25,
    r".*_shoulder_pitch_joint": -0.5,
}
"""Change of the default pose at the lowest point [rad]; the feet stay flat."""
_RAISED = {
    r"right_shoulder_pitch_joint": -0.6,
    r"right_shoulder_roll_joint": -1.3,
    r"right_shoulder_yaw_joint": -0.6,
    r"right_elbow_joint": 0.1,
}
_WAVING = {r"right_shoulder_yaw_joint": 0.5, r"right_wrist_roll_joint": 0.3}
_WAVES_PER_S = 1.0


def squat_and_wave() -> Motion:
    """Return the motion, 10 s long; a squat from 1 to 4 s, a wave from 4.5 to 9 s."""
    model = g1.g1_on_plane().compile()
    data = mujoco.MjData(model)
    names = legged.joint_names(model)
    default = np.array(model.key("default").qpos[7:])
    squat, raised, waving = (np.array(legged.by_joint(part, names, 0.0)) for part in (_SQUAT, _RAISED, _WAVING))
    times = np.arange(0, _DURATION_S + 1e-9, 1 / _FPS)
    down = _bump(times, start=1.0, rise=1.2, hold=0.6)
    up = _bump(times, start=4.5, rise=1.0, hold=2.5)
    swing = up * np.sin(2 * np.pi * _WAVES_PER_S * (times - 5.5))
    joints = default + np.outer(down, squat) + np.outer(up, raised) + np.outer(swing, waving)
    table = np.zeros((len(times), 7 + len(names)))
    table[:, 6], table[:, 7:] = 1.0, joints
    foot = model.site("left_foot").id
    start = np.zeros(3)
    for row, pose in enumerate(joints):
        # the root goes where the left foot stays in its place
        data.qpos[:] = [*g1.ROOT_POSITION, 1, 0, 0, 0, *pose]
        mujoco.mj_kinematics(model, data)
        if row == 0:
            start = data.site_xpos[foot].copy()
            start[2] -= _lowest_point(model, data)
        table[row, :3] = g1.ROOT_POSITION + start - data.site_xpos[foot]
    return motion_from_table(model, table, fps=_FPS)


def _bump(times: NDArray[np.float64], *, start: float, rise: float, hold: float) -> NDArray[np.float64]:
    """Return 0, then a smooth rise to 1, a hold, and as smooth a fall."""
    first = np.clip((times - start) / rise, 0, 1)
    last = np.clip((times - start - rise - hold) / rise, 0, 1)
    return _smooth(first) - _smooth(last)


def _smooth(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rise from 0 to 1 with zero velocity and acceleration at both ends."""
    return share**3 * (10 - 15 * share + 6 * share**2)


def _lowest_point(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """Return the height of the lowest point of the foot's capsules [m]."""
    ends = []
    for name in g1.FOOT_GEOMS:
        geom = model.geom(name).id
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2]
        ends.append(data.geom_xpos[geom][2] - abs(axis[2]) * model.geom_size[geom, 1] - model.geom_size[geom, 0])
    return float(min(ends))
