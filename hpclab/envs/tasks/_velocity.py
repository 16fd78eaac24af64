"""What the velocity tasks share: a legged robot walks after commanded planar velocities.

Source: mjlab 1.6.0's velocity tasks; every number is theirs. A task states what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpclab.envs.robots import legged
from hpclab.envs.spec import EventTerm, ObservationTerm, RewardTerm, Term, TerminationTerm
from hpclab.envs.terms import (
    commands,
    curriculum,
    events,
    metrics,
    observations,
    randomize,
    rewards,
    terminations,
    trackers,
)

TWIST = {"command": "twist"}
SWING_HEIGHT_M = 0.1
WALKING_FROM, RUNNING_FROM = 0.05, 1.5
"""Commanded speeds, norm(vx, vy) + abs(yaw rate), from which the pose reward allows more."""
_STEPS_PER_ITERATION = 24


def foot_sensors(feet: Sequence[str], what: str) -> list[str]:
    """Return one sensor's name for each foot."""
    return [f"{foot}_foot_{what}" for foot in feet]


def observation_groups(
    scan: Mapping[str, ObservationTerm] | None = None,
) -> dict[str, dict[str, ObservationTerm]]:
    """Return actor and critic groups; `scan` gives each its term of the terrain's heights, after the command."""
    lin_vel = {"name": "imu_lin_vel"}
    ang_vel = {"name": "imu_ang_vel"}
    contacts = {"contacts": "feet"}
    actor = {
        "base_lin_vel": ObservationTerm(observations.sensor, lin_vel, noise=0.5),
        "base_ang_vel": ObservationTerm(observations.sensor, ang_vel, noise=0.2),
        "projected_gravity": ObservationTerm(observations.projected_gravity, {"up": "root_up"}, noise=0.05),
        "joint_pos": ObservationTerm(observations.encoder_joint_pos, noise=0.01),
        "joint_vel": ObservationTerm(observations.joint_vel, noise=1.5),
        "actions": ObservationTerm(observations.last_action),
        "command": ObservationTerm(observations.command, {"name": "twist"}),
    }
    critic = {name: replace(term, noise=0.0) for name, term in actor.items()}
    critic["joint_pos"] = ObservationTerm(observations.joint_pos)
    if scan is not None:
        actor["height_scan"], critic["height_scan"] = scan["actor"], scan["critic"]
    critic |= {
        "foot_height": ObservationTerm(observations.foot_height, {"heights": "foot_heights"}),
        "foot_air_time": ObservationTerm(observations.foot_air_time, contacts),
        "foot_contact": ObservationTerm(observations.foot_contact, contacts),
        "foot_contact_forces": ObservationTerm(observations.foot_contact_force, contacts),
    }
    return {"actor": actor, "critic": critic}


def reward_terms(
    feet: Sequence[str],
    *,
    upright: RewardTerm,
    standing_std: Mapping[str, float],
    walking_std: Mapping[str, float],
    running_std: Mapping[str, float],
    body_ang_vel: RewardTerm,
    angular_momentum_weight: float,
) -> dict[str, RewardTerm]:
    """Return the terms that every velocity task has.

    Args:
        feet: prefixes of the feet's sensors.
        upright: worth of holding the body upright.
        standing_std, walking_std, running_std: allowed deviations from the default pose [rad] by joint name pattern.
        body_ang_vel: cost of a body's roll and pitch rate.
        angular_momentum_weight: weight of the whole body's angular momentum.
    """
    of_feet = TWIST | {"contacts": "feet"}
    swing = TWIST | {"heights": "foot_heights", "target_m": SWING_HEIGHT_M}
    velocities = foot_sensors(feet, "vel")
    speed_classes = {"std": (standing_std, walking_std, running_std), "from_speed": (WALKING_FROM, RUNNING_FROM)}
    linear = TWIST | {"velocity": "root_lin_vel", "variance": 0.25}
    angular = TWIST | {"velocity": "root_ang_vel", "variance": 0.5}
    momentum = {"sensor": "root_angmom"}
    return {
        "track_linear_velocity": RewardTerm(rewards.track_linear_velocity, linear, weight=2.0),
        "track_angular_velocity": RewardTerm(rewards.track_angular_velocity, angular, weight=2.0),
        "upright": upright,
        "pose": RewardTerm(rewards.Pose, TWIST | speed_classes, weight=1.0),
        "body_ang_vel": body_ang_vel,
        "angular_momentum": RewardTerm(rewards.sum_of_squares, momentum, weight=angular_momentum_weight),
        "dof_pos_limits": RewardTerm(rewards.JointPosLimits, {"soft_factor": 0.9}, weight=-1.0),
        "action_rate_l2": RewardTerm(rewards.action_rate_l2, weight=-0.1),
        "air_time": RewardTerm(rewards.air_time, of_feet | {"range_s": (0.05, 0.5)}, weight=0.0),
        "foot_clearance": RewardTerm(rewards.FootClearance, swing | {"velocities": velocities}, weight=-2.0),
        "foot_swing_height": RewardTerm(rewards.FootSwingHeight, swing | {"contacts": "feet"}, weight=-0.25),
        "foot_slip": RewardTerm(rewards.FootSlip, of_feet | {"velocities": velocities}, weight=-0.1),
        "soft_landing": RewardTerm(rewards.soft_landing, of_feet, weight=-1e-5),
    }


def foot_trackers(feet: Sequence[str]) -> dict[str, Term]:
    """Return the trackers of the feet's contacts and of their heights above flat ground."""
    contacts = {"found": foot_sensors(feet, "contact_found"), "force": foot_sensors(feet, "contact_force")}
    return {
        "feet": Term(trackers.Contacts, {"name": "feet", **contacts}),
        "foot_heights": Term(trackers.FootHeights, {"name": "foot_heights", "positions": foot_sensors(feet, "pos")}),
    }


def event_terms(com_body: str, friction: Mapping[str, EventTerm]) -> dict[str, EventTerm]:
    """Return the randomisation at startup (the feet's `friction` first), the reset and the pushes."""
    com = {"body": com_body, "x": (-0.025, 0.025), "y": (-0.025, 0.025), "z": (-0.03, 0.03)}
    pose = {"x": (-0.5, 0.5), "y": (-0.5, 0.5), "z": (0.01, 0.05), "yaw": (-3.14, 3.14)}
    push = {
        "axes": legged.ROOT_AXES,
        "linear": ((-0.5, 0.5), (-0.5, 0.5), (-0.4, 0.4)),
        "angular": ((-0.52, 0.52), (-0.52, 0.52), (-0.78, 0.78)),
    }
    return {
        **friction,
        "encoder_bias": EventTerm(randomize.EncoderBias, {"range": (-0.015, 0.015)}, mode="startup"),
        "body_com": EventTerm(randomize.CenterOfMass, com, mode="startup"),
        "reset_base": EventTerm(events.ResetRootUniform, pose, mode="reset"),
        "push_robot": EventTerm(events.PushRoot, push, mode="interval", interval_s=(1.0, 3.0)),
    }


def termination_terms() -> dict[str, TerminationTerm]:
    """Return the time limit and the tilt of the root."""
    return {
        "time_out": TerminationTerm(terminations.time_out, time_out=True),
        "fell_over": TerminationTerm(terminations.tilt, {"up": "root_up", "limit_deg": 70.0}),
    }


def twist_command() -> dict[str, Term]:
    """Return the command `twist`."""
    params: dict[str, Any] = {
        "name": "twist",
        "forward_axis": legged.ROOT_AXES[0],
        "vx": (-1.0, 1.0),
        "vy": (-1.0, 1.0),
        "yaw_rate": (-0.5, 0.5),
        "resample_s": (3.0, 8.0),
        "standing": 0.1,
        "follow_heading": 0.3,
        "heading_stiffness": 0.5,
        "forward_only": 0.2,
    }
    return {"twist": Term(commands.VelocityCommand, params)}


def command_curriculum() -> dict[str, Term]:
    """Return the stages in which the command's ranges widen."""
    stages = (
        curriculum.VelocityStage(5000 * _STEPS_PER_ITERATION, (-1.5, 2.0), (-1.0, 1.0), (-0.7, 0.7)),
        curriculum.VelocityStage(10000 * _STEPS_PER_ITERATION, (-2.0, 3.0), (-1.0, 1.0), (-0.7, 0.7)),
    )
    return {"command_ranges": Term(curriculum.VelocityRanges, TWIST | {"stages": stages})}


def tracking_metrics() -> dict[str, Term]:
    """Return how far the velocity is from the command."""
    return {
        "error_vel_xy": Term(metrics.velocity_error_xy, TWIST | {"velocity": "root_lin_vel"}),
        "error_vel_yaw": Term(metrics.velocity_error_yaw, TWIST | {"velocity": "root_ang_vel"}),
    }
