"""Walk the Unitree G1 over stairs, slopes and rough ground after velocity commands.

Source: mjlab 1.6.0, task Mjlab-Velocity-Rough-Unitree-G1; every number is that task's.
"""

from __future__ import annotations

import functools

import mujoco

from hpclab.envs.robots import g1, legged
from hpclab.envs.spec import TaskSpec, Term
from hpclab.envs.tasks import _rough as rough
from hpclab.envs.tasks import _velocity as velocity
from hpclab.envs.tasks import g1_velocity_flat as flat
from hpclab.envs.terms import actions
from hpclab.envs.terrain.terrain import Terrain


def _model(ground: Terrain) -> mujoco.MjSpec:
    spec = rough.model_on(ground, g1.g1_on)
    rough.add_sensors(spec, g1.ROOT_BODY, {foot: f"{foot}_foot" for foot in g1.FEET})
    return spec


def task() -> TaskSpec:
    """Return the specification."""
    ground = Terrain()
    feet = rough.tracker_terms(ground, g1.FEET, ring_radius=0.03, ring_count=6)
    return TaskSpec(
        model=functools.partial(_model, ground),
        decimation=4,
        episode_length_s=20.0,
        observations=rough.observation_groups(),
        action=Term(actions.JointPosition, {"scale": legged.action_scale}),
        rewards=flat.reward_terms(),
        terminations=velocity.termination_terms() | rough.out_of_bounds(ground),
        trackers={**feet, "self_collisions": flat.self_collisions()},
        commands=velocity.twist_command(),
        events=rough.event_terms(flat.event_terms()),
        curriculum=rough.curriculum_terms(),
        metrics=velocity.tracking_metrics(),
        mirror=functools.partial(rough.mirrored, sides=[("left_", "right_")]),
        njmax=400,
        nconmax=70,
    )
