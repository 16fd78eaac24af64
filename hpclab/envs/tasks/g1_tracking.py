"""Follow a reference motion with the Unitree G1.

Source: mjlab 1.6.0, task Mjlab-Tracking-Flat-Unitree-G1; every number is that task's. The motion is one made here, a
squat and a wave, unless `env.motion` names another.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import mujoco

from hpclab.envs.motions.squat_and_wave import squat_and_wave
from hpclab.envs.robots import g1, legged
from hpclab.envs.spec import EventTerm, ObservationTerm, RewardTerm, TaskSpec, Term, TerminationTerm
from hpclab.envs.terms import (
    actions,
    events,
    mirror,
    motion,
    motion_command,
    observations,
    randomize,
    rewards,
    terminations,
    trackers,
)

_SIDES = ("left", "right")
_LEGS = [f"{side}_{part}_link" for side in _SIDES for part in ("hip_roll", "knee", "ankle_roll")]
_ARMS = [f"{side}_{part}_link" for side in _SIDES for part in ("shoulder_roll", "elbow", "wrist_yaw")]
BODIES = (g1.ROOT_BODY, *_LEGS, g1.TORSO_BODY, *_ARMS)
"""The 14 bodies that are followed."""
_HANDS_AND_FEET = tuple(i for i, body in enumerate(BODIES) if "ankle_roll" in body or "wrist_yaw" in body)
_COMMAND = {"command": "motion"}
_POSE = {"x": (-0.05, 0.05), "y": (-0.05, 0.05), "z": (-0.01, 0.01)}
_POSE |= {"roll": (-0.1, 0.1), "pitch": (-0.1, 0.1), "yaw": (-0.2, 0.2)}
_PUSH = {"x": (-0.5, 0.5), "y": (-0.5, 0.5), "z": (-0.2, 0.2)}
_PUSH |= {"roll": (-0.52, 0.52), "pitch": (-0.52, 0.52), "yaw": (-0.78, 0.78)}


def _model() -> mujoco.MjSpec:
    spec = g1.g1_on(legged.add_plane, foot_contacts=False)
    legged.add_root_axes(spec, g1.ROOT_BODY)
    motion_command.add_body_sensors(spec, BODIES)
    return spec


def _observations() -> dict[str, dict[str, ObservationTerm]]:
    actor = {
        "command": ObservationTerm(observations.command, {"name": "motion"}),
        "motion_anchor_pos": ObservationTerm(motion.anchor_position, _COMMAND, noise=0.25),
        "motion_anchor_ori": ObservationTerm(motion.anchor_orientation, _COMMAND, noise=0.05),
        "base_lin_vel": ObservationTerm(observations.sensor, {"name": "imu_lin_vel"}, noise=0.5),
        "base_ang_vel": ObservationTerm(observations.sensor, {"name": "imu_ang_vel"}, noise=0.2),
        "joint_pos": ObservationTerm(observations.encoder_joint_pos, noise=0.01),
        "joint_vel": ObservationTerm(observations.joint_vel, noise=0.5),
        "actions": ObservationTerm(observations.last_action),
    }
    clean = {name: replace(term, noise=0.0) for name, term in actor.items()}
    clean["joint_pos"] = ObservationTerm(observations.joint_pos)
    reference = ("command", "motion_anchor_pos", "motion_anchor_ori")
    critic = {
        **{name: clean[name] for name in reference},
        "body_pos": ObservationTerm(motion.body_positions, _COMMAND),
        "body_ori": ObservationTerm(motion.body_orientations, _COMMAND),
        **{name: term for name, term in clean.items() if name not in reference},
    }
    return {"actor": actor, "critic": critic}


def _rewards() -> dict[str, RewardTerm]:
    def following(error: str, std: float, weight: float) -> RewardTerm:
        return RewardTerm(motion.following, _COMMAND | {"error": error, "std": std}, weight=weight)

    return {
        "motion_global_root_pos": following("anchor_pos", 0.3, 0.5),
        "motion_global_root_ori": following("anchor_ori", 0.4, 0.5),
        "motion_body_pos": following("body_pos", 0.3, 1.0),
        "motion_body_ori": following("body_ori", 0.4, 1.0),
        "motion_body_lin_vel": following("body_lin_vel", 1.0, 1.0),
        "motion_body_ang_vel": following("body_ang_vel", 3.14, 1.0),
        "action_rate_l2": RewardTerm(rewards.action_rate_l2, weight=-0.1),
        "joint_limit": RewardTerm(rewards.JointPosLimits, {"soft_factor": 0.9}, weight=-10.0),
        "self_collisions": RewardTerm(rewards.tracked_count, {"tracker": "self_collisions"}, weight=-10.0),
    }


def _events() -> dict[str, EventTerm]:
    com = {"body": g1.TORSO_BODY, "x": (-0.025, 0.025), "y": (-0.05, 0.05), "z": (-0.05, 0.05)}
    linear, angular = ([_PUSH[axis] for axis in axes] for axes in (("x", "y", "z"), ("roll", "pitch", "yaw")))
    push = {"axes": legged.ROOT_AXES, "linear": linear, "angular": angular}
    friction = {"geoms": g1.FOOT_GEOMS, "range": (0.3, 1.2)}
    return {
        "foot_friction": EventTerm(randomize.Friction, friction, mode="startup"),
        "encoder_bias": EventTerm(randomize.EncoderBias, {"range": (-0.01, 0.01)}, mode="startup"),
        "torso_com": EventTerm(randomize.CenterOfMass, com, mode="startup"),
        "to_motion": EventTerm(motion_command.ResetToMotion, _COMMAND | {"starts": "motion_starts"}, mode="reset"),
        "push_robot": EventTerm(events.PushRoot, push, mode="interval", interval_s=(1.0, 3.0)),
    }


def task() -> TaskSpec:
    """Return the specification."""
    starts = {"pose": _POSE, "velocity": _PUSH, "joint_offset": (-0.1, 0.1), "soft_factor": 0.9}
    lost = _COMMAND | {"limit_m": 0.25}
    following = {"name": "motion", "motion": squat_and_wave, "bodies": BODIES, "anchor": g1.TORSO_BODY}
    self_contact = {"force": "self_collision_force", "threshold_n": 10.0}
    return TaskSpec(
        model=_model,
        decimation=4,
        episode_length_s=10.0,
        observations=_observations(),
        action=Term(actions.JointPosition, {"scale": legged.action_scale}),
        rewards=_rewards(),
        terminations={
            "time_out": TerminationTerm(terminations.time_out, time_out=True),
            "anchor_pos": TerminationTerm(motion.anchor_too_high_or_low, lost),
            "anchor_ori": TerminationTerm(motion.anchor_leans, _COMMAND | {"limit": 0.8}),
            "ee_body_pos": TerminationTerm(motion.BodiesTooHighOrLow, lost | {"bodies": _HANDS_AND_FEET}),
        },
        trackers={"self_collisions": Term(trackers.SubstepsWithForce, self_contact)},
        commands={"motion": Term(motion_command.MotionCommand, following)},
        events=_events(),
        curriculum={"motion_starts": Term(motion_command.MotionStarts, _COMMAND | starts | {"name": "motion_starts"})},
        metrics={
            f"error_{error}": Term(motion.root_mean_square_error, _COMMAND | {"error": error})
            for error in motion.ERRORS
        },
        mirror=functools.partial(mirror.tracking_robot, sides=[("left_", "right_")], bodies=BODIES),
        njmax=250,
        nconmax=35,
    )
