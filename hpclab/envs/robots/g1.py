"""The Unitree G1 humanoid with 29 joints: its MJCF and the numbers its tasks share.

Source: the hardware description is Unitree's (BSD-3-Clause, see LICENSE.unitree); gains, action scales and the default
pose are those of mjlab 1.6.0's velocity task.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from hpclab.envs.robots import legged

XML = Path(__file__).with_name("g1.xml")

ROOT_BODY = "pelvis"
TORSO_BODY = "torso_link"
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


def g1_on(ground: legged.Ground, *, ccd_iterations: int = 50, foot_contacts: bool = True) -> mujoco.MjSpec:
    """Build the G1 on some ground, with contact sensors and the keyframe `default`.

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

    Args:
        ground: adds the body that the feet stand on.
        ccd_iterations: limit of the convex collision detector.
        foot_contacts: whether the feet's contacts with the ground are sensed.
    """
    spec = legged.load(
        XML,
        root_position=ROOT_POSITION,
        default_joint_pos=DEFAULT_JOINT_POS,
        cone=mujoco.mjtCone.mjCONE_PYRAMIDAL,
        ccd_iterations=ccd_iterations,
    )
    ground(spec)
    for foot in FEET if foot_contacts else ():
        ankle = f"{foot}_ankle_roll_link"
        legged.add_contact_sensors(spec, f"{foot}_foot_contact", ankle, legged.TERRAIN, net_force=True)
    legged.add_contact_sensors(spec, "self_collision", ROOT_BODY, None, net_force=False)
    return spec


def g1_on_plane() -> mujoco.MjSpec:
    """Build the G1 on an infinite plane; see `g1_on`."""
    return g1_on(legged.add_plane)
