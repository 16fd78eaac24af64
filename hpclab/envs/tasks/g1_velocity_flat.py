"""Walk the Unitree G1 on flat ground after velocity commands.

Source: mjlab 1.6.0, task Mjlab-Velocity-Flat-Unitree-G1; every number is that task's.
"""

from __future__ import annotations

import functools

import mujoco

from hpclab.envs.robots import g1, legged
from hpclab.envs.spec import EventTerm, RewardTerm, TaskSpec, Term
from hpclab.envs.tasks import _velocity as velocity
from hpclab.envs.terms import actions, mirror, randomize, rewards, trackers

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
    spec = g1.g1_on_plane()
    legged.add_root_axes(spec, g1.ROOT_BODY)
    return spec


def reward_terms() -> dict[str, RewardTerm]:
    """Return the G1's rewards, on any ground."""
    turning = RewardTerm(rewards.horizontal_sum_of_squares, {"sensor": "torso_ang_vel"}, weight=-0.05)
    terms = velocity.reward_terms(
        g1.FEET,
        upright=RewardTerm(rewards.upright, {"up": "torso_up", "variance": 0.2}, weight=1.0),
        standing_std=_STANDING_STD,
        walking_std=_WALKING_STD,
        running_std=_RUNNING_STD,
        body_ang_vel=turning,
        angular_momentum_weight=-0.02,
    )
    terms["self_collisions"] = RewardTerm(rewards.tracked_count, {"tracker": "self_collisions"}, weight=-1.0)
    return terms


def self_collisions() -> Term:
    """Return the tracker of the robot's contacts with itself."""
    return Term(trackers.SubstepsWithForce, {"force": "self_collision_force", "threshold_n": 10.0})


def event_terms() -> dict[str, EventTerm]:
    """Return the G1's events, on flat ground."""
    friction = EventTerm(randomize.Friction, {"geoms": g1.FOOT_GEOMS, "range": (0.3, 1.2)}, mode="startup")
    return velocity.event_terms(g1.TORSO_BODY, {"foot_friction": friction})


def task() -> TaskSpec:
    """Return the specification."""
    return TaskSpec(
        model=_model,
        decimation=4,
        episode_length_s=20.0,
        observations=velocity.observation_groups(),
        action=Term(actions.JointPosition, {"scale": legged.action_scale}),
        rewards=reward_terms(),
        terminations=velocity.termination_terms(),
        trackers={**velocity.foot_trackers(g1.FEET), "self_collisions": self_collisions()},
        commands=velocity.twist_command(),
        events=event_terms(),
        curriculum=velocity.command_curriculum(),
        metrics=velocity.tracking_metrics(),
        mirror=functools.partial(mirror.legged_robot, sides=[("left_", "right_")]),
        njmax=200,
        nconmax=48,
    )
