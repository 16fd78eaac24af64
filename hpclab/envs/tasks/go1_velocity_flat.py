"""Walk the Unitree Go1 on flat ground after velocity commands.

Source: mjlab 1.6.0, task Mjlab-Velocity-Flat-Unitree-Go1; every number is that task's.
"""

from __future__ import annotations

import functools

import mujoco

from hpclab.envs.robots import go1, legged
from hpclab.envs.spec import EventTerm, RewardTerm, TaskSpec, Term
from hpclab.envs.tasks import _velocity as velocity
from hpclab.envs.terms import actions, mirror, randomize, rewards

_STANDING_STD = {r".*_hip_joint": 0.05, r".*_thigh_joint": 0.05, r".*_calf_joint": 0.1}
_MOVING_STD = {r".*_hip_joint": 0.3, r".*_thigh_joint": 0.3, r".*_calf_joint": 0.6}


def _model() -> mujoco.MjSpec:
    spec = go1.go1_on_plane()
    legged.add_root_axes(spec, go1.ROOT_BODY)
    return spec


def reward_terms(upright: RewardTerm) -> dict[str, RewardTerm]:
    """Return the Go1's rewards with the given worth of holding the trunk upright."""
    return velocity.reward_terms(
        go1.FEET,
        upright=upright,
        standing_std=_STANDING_STD,
        walking_std=_MOVING_STD,
        running_std=_MOVING_STD,
        body_ang_vel=RewardTerm(rewards.horizontal_sum_of_squares, {"sensor": "root_ang_vel"}, weight=0.0),
        angular_momentum_weight=0.0,
    )


def event_terms() -> dict[str, EventTerm]:
    """Return the Go1's events, on flat ground."""
    feet = {"geoms": go1.FOOT_GEOMS}
    spin = {"kind": "spin", "range": (1e-4, 2e-2), "distribution": "log_uniform"}
    roll = {"kind": "roll", "range": (1e-5, 5e-3), "distribution": "log_uniform"}
    friction = {
        "foot_friction": EventTerm(randomize.Friction, feet | {"range": (0.3, 1.5)}, mode="startup"),
        "foot_friction_spin": EventTerm(randomize.Friction, feet | spin, mode="startup"),
        "foot_friction_roll": EventTerm(randomize.Friction, feet | roll, mode="startup"),
    }
    return velocity.event_terms(go1.ROOT_BODY, friction)


def task() -> TaskSpec:
    """Return the specification."""
    upright = RewardTerm(rewards.upright, {"up": "root_up", "variance": 0.2}, weight=1.0)
    return TaskSpec(
        model=_model,
        decimation=4,
        episode_length_s=20.0,
        observations=velocity.observation_groups(),
        action=Term(actions.JointPosition, {"scale": legged.action_scale}),
        rewards=reward_terms(upright),
        terminations=velocity.termination_terms(),
        trackers=velocity.foot_trackers(go1.FEET),
        commands=velocity.twist_command(),
        events=event_terms(),
        curriculum=velocity.command_curriculum(),
        metrics=velocity.tracking_metrics(),
        mirror=functools.partial(mirror.legged_robot, sides=[("FL_", "FR_"), ("RL_", "RR_")]),
        njmax=60,
        nconmax=24,
    )
