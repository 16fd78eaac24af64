"""What the velocity tasks on rough terrain share. Source: mjlab 1.6.0's rough velocity tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco

from hpclab.envs.manager import ManagerEnv
from hpclab.envs.mirror import TaskMirror
from hpclab.envs.robots import legged
from hpclab.envs.spec import EventTerm, ObservationTerm, Term, TerminationTerm
from hpclab.envs.tasks import _velocity as velocity
from hpclab.envs.terms import mirror, rays, terrain, trackers
from hpclab.envs.terrain.terrain import Terrain

CCD_ITERATIONS = 500
SCAN_SIZE_M, SCAN_RESOLUTION_M = (1.6, 1.0), 0.1
_START_ROWS = 6
_SCAN_SCALE = 0.2


def add_sensors(spec: mujoco.MjSpec, root: str, foot_sites: dict[str, str]) -> None:
    """Add what rays and levels need: the root's axes and position, and the forward axis of each foot's site."""
    legged.add_root_axes(spec, root)
    frame = {"objtype": mujoco.mjtObj.mjOBJ_XBODY, "objname": root}
    spec.add_sensor(name="root_pos", type=mujoco.mjtSensor.mjSENS_FRAMEPOS, **frame)
    for foot, site in foot_sites.items():
        frame = {"objtype": mujoco.mjtObj.mjOBJ_SITE, "objname": site}
        spec.add_sensor(name=f"{foot}_foot_axis", type=mujoco.mjtSensor.mjSENS_FRAMEXAXIS, **frame)


def observation_groups() -> dict[str, dict[str, ObservationTerm]]:
    """Return the groups of the flat task with the height scan."""
    scan = {"scan": "height_scan"}
    return velocity.observation_groups(
        {
            "actor": ObservationTerm(rays.scanned_heights, scan, noise=0.1, scale=_SCAN_SCALE),
            "critic": ObservationTerm(rays.scanned_heights, scan, scale=_SCAN_SCALE),
        }
    )


def mirrored(env: ManagerEnv, *, sides: Sequence[tuple[str, str]]) -> TaskMirror:
    """Return the mirror image of the flat task's terms and of the height scan; see `mirror.legged_robot`."""
    flat = mirror.legged_robot(env, sides=sides)
    scan = rays.mirror_image(rays.grid(SCAN_SIZE_M, SCAN_RESOLUTION_M))
    return TaskMirror({**flat.observations, "height_scan": scan}, actions=flat.actions)


def tracker_terms(ground: Terrain, feet: Sequence[str], *, ring_radius: float, ring_count: int) -> dict[str, Term]:
    """Return the trackers of patches, scan, contacts and foot heights.

    Args:
        ground: the terrain.
        feet: prefixes of the feet's sensors.
        ring_radius: of the rays around each foot [m].
        ring_count: how many there are, beside the one in the middle.
    """
    scan = {
        "name": "height_scan",
        "terrain": ground,
        "position": "root_pos",
        "forward_axis": legged.ROOT_AXES[0],
        "offsets": rays.grid(SCAN_SIZE_M, SCAN_RESOLUTION_M),
    }
    heights = {
        "name": "foot_heights",
        "terrain": ground,
        "positions": velocity.foot_sensors(feet, "pos"),
        "forward_axes": velocity.foot_sensors(feet, "axis"),
        "offsets": rays.ring(ring_radius, ring_count),
    }
    return velocity.foot_trackers(feet) | {
        "foot_heights": Term(rays.FootHeightsByRays, heights),
        "spawns": Term(terrain.Spawns, {"name": "spawns", "terrain": ground, "start_rows": _START_ROWS}),
        "height_scan": Term(rays.HeightScan, scan),
    }


def event_terms(flat: dict[str, EventTerm]) -> dict[str, EventTerm]:
    """Return the events of the flat task, with episodes that start on the environments' patches."""
    return {"to_patch": EventTerm(terrain.ResetOnPatch, {"spawns": "spawns"}, mode="reset"), **flat}


def out_of_bounds(ground: Terrain) -> dict[str, TerminationTerm]:
    """Return the end of an episode at the terrain's border, which counts as a time limit."""
    bounds = {"terrain": ground, "position": "root_pos"}
    return {"out_of_terrain_bounds": TerminationTerm(terrain.OutOfBounds, bounds, time_out=True)}


def curriculum_terms() -> dict[str, Term]:
    """Return the terrain levels beside the stages of the command's ranges."""
    levels = {"spawns": "spawns", "command": "twist", "position": "root_pos"}
    return {"terrain_levels": Term(terrain.TerrainLevels, levels), **velocity.command_curriculum()}


def substeps_with_force(sensor: str) -> Term:
    """Return a tracker of the substeps in which a contact force exceeds 10 N."""
    return Term(trackers.SubstepsWithForce, {"force": f"{sensor}_force", "threshold_n": 10.0})


def model_on(ground: Terrain, build: Callable[..., mujoco.MjSpec]) -> mujoco.MjSpec:
    """Build a robot on the terrain."""
    return build(ground.add_to, ccd_iterations=CCD_ITERATIONS)
