"""The Unitree Go1 quadruped with 12 joints: its MJCF and the numbers its tasks share.

Source: the hardware description is Unitree's (BSD-3-Clause, see LICENSE.unitree); gains, action scales and the default
pose are those of mjlab 1.6.0's velocity task.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from hpclab.envs.robots import legged

XML = Path(__file__).with_name("go1.xml")

ROOT_BODY = "trunk"
FEET = ("FR", "FL", "RR", "RL")
"""Prefix of each foot's names: the sensors `{foot}_foot_pos`, `{foot}_foot_vel`, `{foot}_foot_contact_found`, ..."""

FOOT_GEOMS = tuple(f"{foot}_foot_collision" for foot in FEET)

ROOT_POSITION = (0.0, 0.0, 0.278)
"""Default position of the trunk [m]."""

DEFAULT_JOINT_POS = {r".R_hip_joint": 0.1, r".L_hip_joint": -0.1, r".*_thigh_joint": 0.9, r".*_calf_joint": -1.8}
"""Default joint positions [rad] by pattern."""


def go1_on(ground: legged.Ground, *, ccd_iterations: int = 50) -> mujoco.MjSpec:
    """Build the Go1 on some ground, with contact sensors and the keyframe `default`.

    Sensors of the robot (go1.xml), all in position or velocity stage but `imu_lin_acc`:
        imu_ang_vel, imu_lin_vel: (3,) of the IMU in the trunk, in its frame [rad/s, m/s].
        root_ang_vel, root_lin_vel: (3,) of the trunk's origin, in the trunk's frame [rad/s, m/s].
        root_up: (3,) the world's z axis in the trunk's frame; projected gravity is its negative.
        root_angmom: (3,) angular momentum of the whole body about its centre of mass.
        {FR,FL,RR,RL}_foot_pos, _vel: (3,) of the foot's centre in the world frame [m, m/s].
    Sensors of contacts, which are forces and so belong to the acceleration stage (a `step`, not `forward`):
        {FR,FL,RR,RL}_foot_contact_found: (1,) number of contacts between the foot and the ground.
        {FR,FL,RR,RL}_foot_contact_force: (3,) their net force in the world frame [N], pointing into the ground.

    Args:
        ground: adds the body that the feet stand on.
        ccd_iterations: limit of the convex collision detector.
    """
    spec = legged.load(
        XML,
        root_position=ROOT_POSITION,
        default_joint_pos=DEFAULT_JOINT_POS,
        cone=mujoco.mjtCone.mjCONE_ELLIPTIC,
        impratio=10.0,
        ccd_iterations=ccd_iterations,
    )
    ground(spec)
    for foot in FEET:
        legged.add_contact_sensors(
            spec, f"{foot}_foot_contact", f"{foot}_foot_collision", legged.TERRAIN, kind="geom", net_force=True
        )
    return spec


def go1_on_plane() -> mujoco.MjSpec:
    """Build the Go1 on an infinite plane; see `go1_on`."""
    return go1_on(legged.add_plane)
