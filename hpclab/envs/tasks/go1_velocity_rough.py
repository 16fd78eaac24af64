"""Walk the Unitree Go1 over stairs, slopes and rough ground after velocity commands.

Source: mjlab 1.6.0, task Mjlab-Velocity-Rough-Unitree-Go1; every number is that task's.
"""

from __future__ import annotations

import functools

import mujoco

from hpclab.envs.robots import go1, legged
from hpclab.envs.spec import RewardTerm, TaskSpec, Term, TerminationTerm
from hpclab.envs.tasks import _rough as rough
from hpclab.envs.tasks import _velocity as velocity
from hpclab.envs.tasks import go1_velocity_flat as flat
from hpclab.envs.terms import actions, contacts, rays, rewards, terrain
from hpclab.envs.terrain.terrain import Terrain

_SHANKS = [f"{foot}_calf_collision{i}" for foot in go1.FEET for i in (1, 2)]
_TRUNK_AND_HEAD = ["trunk_collision", "head_collision"]
_THIGHS = [f"{foot}_thigh_collision{i}" for foot in go1.FEET for i in (1, 2, 3)]
_EVERY_SIXTH_RAY = 6


def _model(ground: Terrain) -> mujoco.MjSpec:
    spec = rough.model_on(ground, go1.go1_on)
    rough.add_sensors(spec, go1.ROOT_BODY, {foot: foot for foot in go1.FEET})
    legged.add_contact_sensors(spec, "self_collision", go1.ROOT_BODY, None, net_force=False)
    for geom in _SHANKS + _TRUNK_AND_HEAD + _THIGHS:
        legged.add_contact_sensors(spec, geom, geom, legged.TERRAIN, kind="geom", net_force=False, fields=("force",))
    return spec


def _forces(geoms: list[str]) -> Term:
    forces = [f"{geom}_force" for geom in geoms]
    return Term(contacts.SubstepsWithAnyForce, {"forces": forces, "threshold_n": 10.0})


def _rewards() -> dict[str, RewardTerm]:
    normal = {"normal": "ground_normal", "axes": legged.ROOT_AXES[:2], "variance": 0.2}
    costs = ("self_collisions", "shank_collision", "trunk_head_collision")
    return flat.reward_terms(RewardTerm(terrain.UprightOnTerrain, normal, weight=1.0)) | {
        name: RewardTerm(rewards.tracked_count, {"tracker": name}, weight=-0.1) for name in costs
    }


def task() -> TaskSpec:
    """Return the specification."""
    ground = Terrain()
    feet = rough.tracker_terms(ground, go1.FEET, ring_radius=0.04, ring_count=4)
    plane = {"name": "ground_normal", "scan": "height_scan", "every": _EVERY_SIXTH_RAY}
    return TaskSpec(
        model=functools.partial(_model, ground),
        decimation=4,
        episode_length_s=20.0,
        observations=rough.observation_groups(),
        action=Term(actions.JointPosition, {"scale": legged.action_scale}),
        rewards=_rewards(),
        terminations={
            "time_out": velocity.termination_terms()["time_out"],
            "illegal_contact": TerminationTerm(contacts.touched, {"tracker": "thigh_contact"}),
            **rough.out_of_bounds(ground),
        },
        trackers={
            **feet,
            "ground_normal": Term(rays.TerrainNormal, plane),
            "self_collisions": rough.substeps_with_force("self_collision"),
            "shank_collision": _forces(_SHANKS),
            "trunk_head_collision": _forces(_TRUNK_AND_HEAD),
            "thigh_contact": _forces(_THIGHS),
        },
        commands=velocity.twist_command(),
        events=rough.event_terms(flat.event_terms()),
        curriculum=rough.curriculum_terms(),
        metrics=velocity.tracking_metrics(),
        mirror=functools.partial(rough.mirrored, sides=[("FL_", "FR_"), ("RL_", "RR_")]),
        njmax=200,
        nconmax=35,
    )
