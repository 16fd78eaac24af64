"""What the models of legged robots share: lookups by joint name, the ground, contact sensors, the default pose."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import mujoco

TERRAIN = "terrain"
"""Name of the static body that holds the ground."""

ROOT_AXES = ("root_axis_x", "root_axis_y", "root_axis_z")
"""Sensors of the root's axes in the world frame, (3,) each."""

ACTION_SCALE_OF_LIMIT = 0.25
"""A unit action moves the position target by this share of effort limit / stiffness."""

Ground = Callable[[mujoco.MjSpec], None]
"""Adds a body `TERRAIN` to a model."""

_FIRST_CONTACT, _NET_FORCE = 0, 3  # how a contact sensor reduces several contacts to one
_AXIS_SENSORS = (
    mujoco.mjtSensor.mjSENS_FRAMEXAXIS,
    mujoco.mjtSensor.mjSENS_FRAMEYAXIS,
    mujoco.mjtSensor.mjSENS_FRAMEZAXIS,
)


def by_joint(table: Mapping[str, float], joints: tuple[str, ...], default: float | None = None) -> tuple[float, ...]:
    """Give every joint the value of the one pattern of `table` that matches its whole name.

    Raises:
        ValueError: a joint matches several patterns, or none while there is no default; a pattern matches no joint.
    """
    values = []
    for joint in joints:
        found = [value for pattern, value in table.items() if re.fullmatch(pattern, joint)]
        if len(found) > 1 or (not found and default is None):
            raise ValueError(f"{joint} matches {len(found)} of the patterns {list(table)}; it must match one")
        values.append(found[0] if found else default)
    for pattern in table:
        if not any(re.fullmatch(pattern, joint) for joint in joints):
            raise ValueError(f"the pattern {pattern} matches none of the joints {list(joints)}")
    return tuple(float(value) for value in values if value is not None)


def joint_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the hinge joints in the order of qpos[7:], which is the order of actions and joint observations."""
    hinges = [j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_HINGE]
    return tuple(str(model.joint(j).name) for j in hinges)


def actuator_order(model: mujoco.MjModel) -> tuple[int, ...]:
    """Return the index into `ctrl` of each joint's actuator, in the order of `joint_names`."""
    return tuple(int(model.actuator(name).id) for name in joint_names(model))


def action_scale(model: mujoco.MjModel) -> tuple[float, ...]:
    """Return the position change of a unit action [rad] of each joint, in the order of `joint_names`."""
    return tuple(
        ACTION_SCALE_OF_LIMIT * float(model.actuator_forcerange[a, 1] / model.actuator_gainprm[a, 0])
        for a in actuator_order(model)
    )


def load(
    xml: Path,
    *,
    root_position: tuple[float, float, float],
    default_joint_pos: Mapping[str, float],
    cone: mujoco.mjtCone,
    impratio: float = 1.0,
    ccd_iterations: int = 50,
) -> mujoco.MjSpec:
    """Read a robot's MJCF; add the keyframe `default` and the physics options of mjlab 1.6.0's tasks.

    Args:
        xml: the robot alone, with a free joint and one position actuator per hinge, named after it.
        root_position: default position of the root [m].
        default_joint_pos: default joint positions [rad] by pattern; joints without a pattern stand at 0.
        cone: kind of friction cone.
        impratio: how much stiffer friction is than the normal direction of contacts.
        ccd_iterations: limit of the convex collision detector.
    """
    spec = mujoco.MjSpec.from_file(str(xml))
    option = spec.option
    option.timestep = 0.005
    option.iterations = 10
    option.ls_iterations = 20
    option.ccd_iterations = ccd_iterations
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = cone
    option.impratio = impratio
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model = spec.compile()
    joints = by_joint(default_joint_pos, joint_names(model), 0.0)
    ctrl = [0.0] * model.nu
    for position, actuator in zip(joints, actuator_order(model), strict=True):
        ctrl[actuator] = position
    spec.add_key(name="default", qpos=[*root_position, 1, 0, 0, 0, *joints], ctrl=ctrl)
    return spec


def as_motors(spec: mujoco.MjSpec) -> None:
    """Turn the robot's actuators into plain motors, whose input is the effort [N m or N], within its limits."""
    for actuator in spec.actuators:
        limit = [float(value) for value in actuator.forcerange]
        actuator.set_to_motor()
        actuator.forcerange = limit
    _clear_default_inputs(spec)


def as_velocity_servos(spec: mujoco.MjSpec, damping: float) -> None:
    """Turn the robot's actuators into velocity servos: effort = damping * (input - velocity), within its limits."""
    for actuator in spec.actuators:
        limit = [float(value) for value in actuator.forcerange]
        actuator.set_to_velocity(kv=damping)
        actuator.forcerange = limit
    _clear_default_inputs(spec)


def _clear_default_inputs(spec: mujoco.MjSpec) -> None:
    for key in spec.keys:
        key.ctrl = [0.0] * len(spec.actuators)


def add_plane(spec: mujoco.MjSpec) -> None:
    """Put the robot on an infinite plane at height 0."""
    ground = spec.worldbody.add_body(name=TERRAIN)
    ground.add_geom(name=TERRAIN, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.01])


def add_root_axes(spec: mujoco.MjSpec, body: str) -> None:
    """Add the sensors `ROOT_AXES` of a body."""
    for name, kind in zip(ROOT_AXES, _AXIS_SENSORS, strict=True):
        spec.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=body)


def add_contact_sensors(
    spec: mujoco.MjSpec,
    name: str,
    of: str,
    other: str | None,
    *,
    kind: Literal["subtree", "body", "geom"] = "subtree",
    net_force: bool,
    fields: Sequence[Literal["found", "force"]] = ("found", "force"),
) -> None:
    """Sense contacts of a part of the robot with one other body, or within a subtree when `other` is None.

    Adds the sensors `{name}_found`, (1,) number of contacts, and `{name}_force`, (3,) [N]: with `net_force` the sum in
    the world frame, pointing into the other body, else the first contact's force in its own frame.
    """
    object_type = {
        "subtree": mujoco.mjtObj.mjOBJ_XBODY,
        "body": mujoco.mjtObj.mjOBJ_BODY,
        "geom": mujoco.mjtObj.mjOBJ_GEOM,
    }[kind]
    bits = {"found": mujoco.mjtConDataField.mjCONDATA_FOUND, "force": mujoco.mjtConDataField.mjCONDATA_FORCE}
    for field in fields:
        spec.add_sensor(
            name=f"{name}_{field}",
            type=mujoco.mjtSensor.mjSENS_CONTACT,
            objtype=object_type,
            objname=of,
            reftype=mujoco.mjtObj.mjOBJ_BODY if other else object_type,
            refname=other or of,
            intprm=[1 << int(bits[field]), _NET_FORCE if net_force else _FIRST_CONTACT, 1],
        )
