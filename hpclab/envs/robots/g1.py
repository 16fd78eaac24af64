"""The Unitree G1 humanoid with 29 joints: its MJCF on flat ground and the numbers its tasks share.

Source: the hardware description is Unitree's (BSD-3-Clause, see LICENSE.unitree); gains, action scales and the default
pose are those of mjlab 1.6.0's velocity task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import mujoco

XML = Path(__file__).with_name("g1.xml")

ROOT_BODY = "pelvis"
TORSO_BODY = "torso_link"
TERRAIN = "terrain"
FEET = ("left", "right")
"""Prefix of each foot's names: the sensors `{foot}_foot_pos`, `{foot}_foot_vel`, `{foot}_foot_contact_found`, ..."""

FOOT_GEOMS = tuple(f"{foot}_foot{i}_collision" for foot in FEET for i in range(1, 8))

ROOT_POSITION = (0.0, 0.0, 0.76)
"""Default position of the pelvis [m]."""

DEFAULT_JOINT_POS = {
    r".*_hip_pitch_joint": -0.312,
    r".*_knee_joint": 0.669,
    r".*_ankle_pitch_joint": -0.363,
    r".*_shoulder_pitch_joint": 0.2,
    r"left_shoulder_roll_joint": 0.2,
    r"right_shoulder_roll_joint": -0.2,
    r".*_elbow_joint": 0.6,
}
"""Default joint positions [rad] by pattern; joints without a pattern stand at 0."""

ACTION_SCALE_OF_LIMIT = 0.25
"""A unit action moves the position target by this share of effort limit / stiffness."""

_FIRST_CONTACT, _NET_FORCE = 0, 3  # how a contact sensor reduces several contacts to one


def by_joint(table: Mapping[str, float], joints: tuple[str, ...], default: float | None = None) -> tuple[float, ...]:
    """Give every joint the value of the one pattern of `table` that matches its whole name.

    Raises:
        ValueError: a joint matches several patterns, or none while there is no default.
    """
    values = []
    for joint in joints:
        found = [value for pattern, value in table.items() if re.fullmatch(pattern, joint)]
        if len(found) > 1 or (not found and default is None):
            raise ValueError(f"{joint} matches {len(found)} of the patterns {list(table)}; it must match one")
        values.append(found[0] if found else default)
    return tuple(float(value) for value in values if value is not None)


def joint_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the hinge joints in the order of qpos[7:], which is the order of actions and joint observations."""
    hinges = [j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE]
    return tuple(str(model.joint(j).name) for j in hinges)


def actuator_order(model: mujoco.MjModel) -> tuple[int, ...]:
    """Return the index into `ctrl` of each joint's actuator, in the order of `joint_names`."""
    return tuple(int(model.actuator(name).id) for name in joint_names(model))


def default_joint_pos(model: mujoco.MjModel) -> tuple[float, ...]:
    """Return the default joint positions [rad], in the order of `joint_names`."""
    return by_joint(DEFAULT_JOINT_POS, joint_names(model), 0.0)


def action_scale(model: mujoco.MjModel) -> tuple[float, ...]:
    """Return the position change of a unit action [rad] of each joint, in the order of `joint_names`."""
    return tuple(
        ACTION_SCALE_OF_LIMIT * float(model.actuator_forcerange[a, 1] / model.actuator_gainprm[a, 0])
        for a in actuator_order(model)
    )


def g1_on_plane() -> mujoco.MjSpec:
    """Build the G1 on an infinite plane, with contact sensors and the keyframe `default`.

    Sensors of the robot (g1.xml), all in position or velocity stage but `imu_lin_acc`:
        imu_ang_vel, imu_lin_vel: (3,) of the IMU in the pelvis, in its frame [rad/s, m/s].
        root_ang_vel, root_lin_vel: (3,) of the pelvis origin, in the pelvis frame [rad/s, m/s].
        root_up, torso_up: (3,) the world's z axis in the body's frame; projected gravity is its negative.
        torso_ang_vel: (3,) in the world frame [rad/s]. root_angmom: (3,) of the whole body about its centre of mass.
        {left,right}_foot_pos, _vel: (3,) of the foot site in the world frame [m, m/s].
    Sensors of contacts, which are forces and so belong to the acceleration stage (a `step`, not `forward`):
        {left,right}_foot_contact_found: (1,) number of contacts between the foot and the ground.
        {left,right}_foot_contact_force: (3,) their net force in the world frame [N], pointing into the ground.
        self_collision_found, _force: (1,) and (3,) number of contacts between two parts of the robot, and the first
            one's force in its own contact frame [N].
    """
    spec = mujoco.MjSpec.from_file(str(XML))
    option = spec.option
    option.timestep = 0.005
    option.iterations = 10
    option.ls_iterations = 20
    option.ccd_iterations = 50
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    ground = spec.worldbody.add_body(name=TERRAIN)
    ground.add_geom(name=TERRAIN, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.01])
    for foot in FEET:
        _add_contact_sensors(spec, f"{foot}_foot_contact", f"{foot}_ankle_roll_link", TERRAIN, net_force=True)
    _add_contact_sensors(spec, "self_collision", ROOT_BODY, None, net_force=False)
    _add_default_pose(spec)
    return spec


def _add_contact_sensors(spec: mujoco.MjSpec, name: str, subtree: str, other: str | None, *, net_force: bool) -> None:
    """Sense contacts of a subtree with one other body, or with itself when `other` is None."""
    fields = {"found": mujoco.mjtConDataField.mjCONDATA_FOUND, "force": mujoco.mjtConDataField.mjCONDATA_FORCE}
    for field, bit in fields.items():
        spec.add_sensor(
            name=f"{name}_{field}",
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            objtype=mujoco.mjtObj.mjOBJ_XBODY,  # with its subtree
            objname=subtree,
            reftype=mujoco.mjtObj.mjOBJ_BODY if other else mujoco.mjtObj.mjOBJ_XBODY,
            refname=other or subtree,
            intprm=[1 << int(bit), _NET_FORCE if net_force else _FIRST_CONTACT, 1],
        )


def _add_default_pose(spec: mujoco.MjSpec) -> None:
    model = spec.compile()
    joints = default_joint_pos(model)
    order = actuator_order(model)
    ctrl = [0.0] * model.nu
    for position, actuator in zip(joints, order, strict=True):
        ctrl[actuator] = position
    spec.add_key(name="default", qpos=[*ROOT_POSITION, 1, 0, 0, 0, *joints], ctrl=ctrl)
