"""Walk the Unitree G1 on flat ground after velocity commands.

Source: mjlab 1.6.0, task Mjlab-Velocity-Flat-Unitree-G1; every number is that task's.
"""

from __future__ import annotations

import mujoco

from hpclab.envs.robots import g1
from hpclab.envs.spec import EventTerm, ObservationTerm, RewardTerm, TaskSpec, Term, TerminationTerm
from hpclab.envs.terms import (
    actions,
    commands,
    curriculum,
    events,
    metrics,
    observations,
    rewards,
    terminations,
    trackers,
)

_FOUND = [f"{foot}_foot_contact_found" for foot in g1.FEET]
_FORCE = [f"{foot}_foot_contact_force" for foot in g1.FEET]
_POSITIONS = [f"{foot}_foot_pos" for foot in g1.FEET]
_VELOCITIES = [f"{foot}_foot_vel" for foot in g1.FEET]
_ROOT_AXES = ("root_axis_x", "root_axis_y", "root_axis_z")
_AXIS_SENSORS = (
    mujoco.mjtSensor.mjSENS_FRAMEXAXIS,
    mujoco.mjtSensor.mjSENS_FRAMEYAXIS,
    mujoco.mjtSensor.mjSENS_FRAMEZAXIS,
)
_SWING_HEIGHT_M = 0.1
_STEPS_PER_ITERATION = 24

_STANDING_STD = {".*": 0.05}
_WALKING_STD = {
    r".*_hip_pitch_joint": 0.3,
    r".*_hip_roll_joint": 0.15,
    r".*_hip_yaw_joint": 0.15,
    r".*_knee_joint": 0.35,
    r".*_ankle_pitch_joint": 0.25,
    r".*_ankle_roll_joint": 0.1,
    r"waist_yaw_joint": 0.2,
    r"waist_roll_joint": 0.08,
    r"waist_pitch_joint": 0.1,
    r".*_shoulder_pitch_joint": 0.15,
    r".*_shoulder_roll_joint": 0.15,
    r".*_shoulder_yaw_joint": 0.1,
    r".*_elbow_joint": 0.15,
    r".*_wrist_.*_joint": 0.3,
}
_RUNNING_STD = {
    r".*_hip_pitch_joint": 0.5,
    r".*_hip_roll_joint": 0.2,
    r".*_hip_yaw_joint": 0.2,
    r".*_knee_joint": 0.6,
    r".*_ankle_pitch_joint": 0.35,
    r".*_ankle_roll_joint": 0.15,
    r"waist_yaw_joint": 0.3,
    r"waist_roll_joint": 0.08,
    r"waist_pitch_joint": 0.2,
    r".*_shoulder_pitch_joint": 0.5,
    r".*_shoulder_roll_joint": 0.2,
    r".*_shoulder_yaw_joint": 0.15,
    r".*_elbow_joint": 0.35,
    r".*_wrist_.*_joint": 0.3,
}


def _model() -> mujoco.MjSpec:
    """The robot on flat ground, with the axes of its pelvis in the world as sensors."""
    spec = g1.g1_on_plane()
    for name, kind in zip(_ROOT_AXES, _AXIS_SENSORS, strict=True):
        spec.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=g1.ROOT_BODY)
    return spec


def _observations() -> dict[str, dict[str, ObservationTerm]]:
    lin_vel = {"name": "imu_lin_vel"}
    ang_vel = {"name": "imu_ang_vel"}
    up = {"up": "root_up"}
    twist = {"name": "twist"}
    contacts = {"contacts": "feet"}
    actor = {
        "base_lin_vel": ObservationTerm(observations.sensor, lin_vel, noise=0.5),
        "base_ang_vel": ObservationTerm(observations.sensor, ang_vel, noise=0.2),
        "projected_gravity": ObservationTerm(observations.projected_gravity, up, noise=0.05),
        "joint_pos": ObservationTerm(observations.encoder_joint_pos, noise=0.01),
        "joint_vel": ObservationTerm(observations.joint_vel, noise=1.5),
        "actions": ObservationTerm(observations.last_action),
        "command": ObservationTerm(observations.command, twist),
    }
    critic = {
        "base_lin_vel": ObservationTerm(observations.sensor, lin_vel),
        "base_ang_vel": ObservationTerm(observations.sensor, ang_vel),
        "projected_gravity": ObservationTerm(observations.projected_gravity, up),
        "joint_pos": ObservationTerm(observations.joint_pos),
        "joint_vel": ObservationTerm(observations.joint_vel),
        "actions": ObservationTerm(observations.last_action),
        "command": ObservationTerm(observations.command, twist),
        "foot_height": ObservationTerm(observations.foot_height, {"heights": "foot_heights"}),
        "foot_air_time": ObservationTerm(observations.foot_air_time, contacts),
        "foot_contact": ObservationTerm(observations.foot_contact, contacts),
        "foot_contact_forces": ObservationTerm(observations.foot_contact_force, contacts),
    }
    return {"actor": actor, "critic": critic}


def _rewards() -> dict[str, RewardTerm]:
    twist = {"command": "twist"}
    feet = {"contacts": "feet", "command": "twist"}
    swing = {"heights": "foot_heights", "command": "twist", "target_m": _SWING_HEIGHT_M}
    speed_classes = {"std": (_STANDING_STD, _WALKING_STD, _RUNNING_STD), "from_speed": (0.05, 1.5)}
    return {
        "track_linear_velocity": RewardTerm(
            rewards.track_linear_velocity, twist | {"velocity": "root_lin_vel", "variance": 0.25}, weight=2.0
        ),
        "track_angular_velocity": RewardTerm(
            rewards.track_angular_velocity, twist | {"velocity": "root_ang_vel", "variance": 0.5}, weight=2.0
        ),
        "upright": RewardTerm(rewards.upright, {"up": "torso_up", "variance": 0.2}, weight=1.0),
        "pose": RewardTerm(rewards.Pose, twist | speed_classes, weight=1.0),
        "body_ang_vel": RewardTerm(rewards.horizontal_sum_of_squares, {"sensor": "torso_ang_vel"}, weight=-0.05),
        "angular_momentum": RewardTerm(rewards.sum_of_squares, {"sensor": "root_angmom"}, weight=-0.02),
        "dof_pos_limits": RewardTerm(rewards.JointPosLimits, {"soft_factor": 0.9}, weight=-1.0),
        "action_rate_l2": RewardTerm(rewards.action_rate_l2, weight=-0.1),
        "air_time": RewardTerm(rewards.air_time, feet | {"range_s": (0.05, 0.5)}, weight=0.0),
        "foot_clearance": RewardTerm(rewards.FootClearance, swing | {"velocities": _VELOCITIES}, weight=-2.0),
        "foot_swing_height": RewardTerm(rewards.FootSwingHeight, swing | {"contacts": "feet"}, weight=-0.25),
        "foot_slip": RewardTerm(rewards.FootSlip, feet | {"velocities": _VELOCITIES}, weight=-0.1),
        "soft_landing": RewardTerm(rewards.soft_landing, feet, weight=-1e-5),
        "self_collisions": RewardTerm(rewards.tracked_count, {"tracker": "self_collisions"}, weight=-1.0),
    }


def _events() -> dict[str, EventTerm]:
    com = {"x": (-0.025, 0.025), "y": (-0.025, 0.025), "z": (-0.03, 0.03)}
    pose = {"x": (-0.5, 0.5), "y": (-0.5, 0.5), "z": (0.01, 0.05), "yaw": (-3.14, 3.14)}
    push = {
        "axes": _ROOT_AXES,
        "linear": ((-0.5, 0.5), (-0.5, 0.5), (-0.4, 0.4)),
        "angular": ((-0.52, 0.52), (-0.52, 0.52), (-0.78, 0.78)),
    }
    friction = {"geoms": g1.FOOT_GEOMS, "range": (0.3, 1.2)}
    return {
        "foot_friction": EventTerm(events.RandomizeFriction, friction, mode="startup"),
        "encoder_bias": EventTerm(events.RandomizeEncoderBias, {"range": (-0.015, 0.015)}, mode="startup"),
        "torso_com": EventTerm(events.RandomizeCenterOfMass, {"body": g1.TORSO_BODY, **com}, mode="startup"),
        "reset_base": EventTerm(events.ResetRootUniform, pose, mode="reset"),
        "push_robot": EventTerm(events.PushRoot, push, mode="interval", interval_s=(1.0, 3.0)),
    }


def task() -> TaskSpec:
    """Return the specification."""
    twist = Term(
        commands.VelocityCommand,
        {
            "name": "twist",
            "forward_axis": _ROOT_AXES[0],
            "vx": (-1.0, 1.0),
            "vy": (-1.0, 1.0),
            "yaw_rate": (-0.5, 0.5),
            "resample_s": (3.0, 8.0),
            "standing": 0.1,
            "follow_heading": 0.3,
            "heading_stiffness": 0.5,
            "forward_only": 0.2,
        },
    )
    stages = (
        curriculum.VelocityStage(5000 * _STEPS_PER_ITERATION, (-1.5, 2.0), (-1.0, 1.0), (-0.7, 0.7)),
        curriculum.VelocityStage(10000 * _STEPS_PER_ITERATION, (-2.0, 3.0), (-1.0, 1.0), (-0.7, 0.7)),
    )
    tracking = {"command": "twist"}
    return TaskSpec(
        model=_model,
        decimation=4,
        episode_length_s=20.0,
        observations=_observations(),
        action=Term(actions.JointPosition, {"scale": g1.action_scale}),
        rewards=_rewards(),
        terminations={
            "time_out": TerminationTerm(terminations.time_out, time_out=True),
            "fell_over": TerminationTerm(terminations.tilt, {"up": "root_up", "limit_deg": 70.0}),
        },
        trackers={
            "feet": Term(trackers.Contacts, {"name": "feet", "found": _FOUND, "force": _FORCE}),
            "foot_heights": Term(trackers.FootHeights, {"name": "foot_heights", "positions": _POSITIONS}),
            "self_collisions": Term(trackers.SubstepsWithForce, {"force": "self_collision_force", "threshold_n": 10.0}),
        },
        commands={"twist": twist},
        events=_events(),
        curriculum={"command_ranges": Term(curriculum.VelocityRanges, {"command": "twist", "stages": stages})},
        metrics={
            "error_vel_xy": Term(metrics.velocity_error_xy, tracking | {"velocity": "root_lin_vel"}),
            "error_vel_yaw": Term(metrics.velocity_error_yaw, tracking | {"velocity": "root_ang_vel"}),
        },
        njmax=200,
        nconmax=48,
    )
