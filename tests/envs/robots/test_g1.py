"""Every number of the G1's facts against the compiled model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from hpclab.envs.robots import g1

FACTS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "unitree_g1.json").read_text())
# the facts are printed with eight significant digits
RELATIVE, ABSOLUTE = 2e-8, 1e-9


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return g1.g1_on_plane().compile()


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=RELATIVE, atol=ABSOLUTE)


def same_rotation(found: object, expected: object) -> None:
    """Quaternions of the facts are rounded, and q and -q are one rotation."""
    a, b = np.asarray(found), np.asarray(expected)
    np.testing.assert_allclose(a * np.sign(a @ b), b, rtol=0, atol=2e-8)


def test_physics_options(model: mujoco.MjModel) -> None:
    expected = FACTS["option"]
    assert model.opt.timestep == expected["timestep"]
    assert model.opt.iterations == expected["iterations"]
    assert model.opt.ls_iterations == expected["ls_iterations"]
    assert model.opt.impratio == expected["impratio"]
    assert model.opt.ccd_iterations == 50
    assert mujoco.mjtIntegrator(model.opt.integrator).name == expected["integrator"]
    assert mujoco.mjtCone(model.opt.cone).name == expected["cone"]
    assert mujoco.mjtSolver(model.opt.solver).name == expected["solver"]
    close(model.opt.gravity, expected["gravity"])


def test_totals(model: mujoco.MjModel) -> None:
    expected = FACTS["totals"]
    assert (model.nq, model.nv, model.nu, model.nbody) == tuple(expected[k] for k in ("nq", "nv", "nu", "nbody"))
    close(model.body_mass.sum(), expected["mass"])


def test_there_are_no_other_bodies_joints_geoms_excludes_or_actuators(model: mujoco.MjModel) -> None:
    assert {model.body(i).name for i in range(1, model.nbody)} == {b["name"] for b in FACTS["bodies"]}
    assert {model.joint(i).name for i in range(model.njnt)} == {j["name"] for j in FACTS["joints"]}
    assert {model.geom(i).name for i in range(model.ngeom)} == {g["name"] for g in FACTS["collision_geoms"]}
    assert {model.actuator(i).name for i in range(model.nu)} == {a["name"] for a in FACTS["actuators"]}
    pairs = {(int(signature) >> 16, int(signature) & 0xFFFF) for signature in model.exclude_signature}
    assert pairs == {tuple(sorted(model.body(name).id for name in pair)) for pair in FACTS["excludes"]}


@pytest.mark.parametrize("body", FACTS["bodies"], ids=lambda b: b["name"])
def test_body(model: mujoco.MjModel, body: dict[str, Any]) -> None:
    found = model.body(body["name"])
    assert model.body(int(found.parentid[0])).name == body["parent"]
    close(found.pos, body["pos"])
    same_rotation(found.quat, body["quat"])
    close(found.mass, [body["mass"]])
    close(found.ipos, body["ipos"])
    same_rotation(found.iquat, body["iquat"])
    close(found.inertia, body["inertia"])


@pytest.mark.parametrize("joint", FACTS["joints"], ids=lambda j: j["name"])
def test_joint(model: mujoco.MjModel, joint: dict[str, Any]) -> None:
    found = model.joint(joint["name"])
    assert model.body(int(found.bodyid[0])).name == joint["body"]
    assert mujoco.mjtJoint(int(found.type[0])).name == joint["type"]
    close(found.axis, joint["axis"])
    close(found.pos, joint["pos"])
    assert bool(found.limited[0]) == joint["limited"]
    close(found.range, joint["range"])
    dof = int(found.dofadr[0])
    close(model.dof_armature[dof], joint["armature"])
    close(model.dof_damping[dof], joint["damping"])
    close(model.dof_frictionloss[dof], joint["frictionloss"])
    assert bool(model.jnt_actfrclimited[found.id]) == joint["actfrclimited"]
    close(model.jnt_actfrcrange[found.id], joint["actfrcrange"])


@pytest.mark.parametrize("geom", FACTS["collision_geoms"], ids=lambda g: g["name"])
def test_geom(model: mujoco.MjModel, geom: dict[str, Any]) -> None:
    found = model.geom(geom["name"])
    assert model.body(int(found.bodyid[0])).name == geom["body"]
    assert mujoco.mjtGeom(int(found.type[0])).name == geom["type"]
    close(found.size, geom["size"])
    close(found.pos, geom["pos"])
    same_rotation(found.quat, geom["quat"])
    for field in ("contype", "conaffinity", "condim", "priority"):
        assert int(getattr(found, field)[0]) == geom[field], field
    for field in ("friction", "solref", "solimp"):
        close(getattr(found, field), geom[field])
    close(found.margin, [geom["margin"]])


@pytest.mark.parametrize("site", FACTS["sites"], ids=lambda s: s["name"])
def test_site(model: mujoco.MjModel, site: dict[str, Any]) -> None:
    found = model.site(site["name"])
    assert model.body(int(found.bodyid[0])).name == site["body"]
    close(found.pos, site["pos"])
    same_rotation(found.quat, site["quat"])


def test_actuators_stand_in_the_order_of_the_facts(model: mujoco.MjModel) -> None:
    assert [model.actuator(i).name for i in range(model.nu)] == [a["name"] for a in FACTS["actuators"]]


@pytest.mark.parametrize("actuator", FACTS["actuators"], ids=lambda a: a["name"])
def test_actuator(model: mujoco.MjModel, actuator: dict[str, Any]) -> None:
    found = model.actuator(actuator["name"])
    assert model.joint(int(found.trnid[0])).name == actuator["joint"]
    close(found.gainprm[:3], actuator["gainprm"])
    close(found.biasprm[:3], actuator["biasprm"])
    close(found.forcerange, actuator["forcerange"])
    assert bool(found.ctrllimited[0]) == actuator["ctrllimited"]
    assert bool(found.forcelimited[0])


OUR_NAMES = {
    f"feet_ground_contact_{foot}_ankle_roll_link_{field}": f"{foot}_foot_contact_{field}"
    for foot in g1.FEET
    for field in ("found", "force")
} | {f"self_collision_pelvis_{field}": f"self_collision_{field}" for field in ("found", "force")}


@pytest.mark.parametrize("sensor", FACTS["sensors"], ids=lambda s: s["name"])
def test_sensor(model: mujoco.MjModel, sensor: dict[str, Any]) -> None:
    found = model.sensor(OUR_NAMES.get(sensor["name"], sensor["name"]))
    assert mujoco.mjtSensor(int(found.type[0])).name == sensor["type"]
    assert int(found.dim[0]) == sensor["dim"]


def test_default_pose(model: mujoco.MjModel) -> None:
    names = g1.joint_names(model)
    close(g1.ROOT_POSITION, np.float32(FACTS["init_root_pos"]))
    assert dict(zip(names, g1.default_joint_pos(model), strict=True)) == pytest.approx(
        FACTS["default_joint_pos"], rel=1e-6
    )
    key = model.key("default")
    np.testing.assert_allclose(key.qpos, [*g1.ROOT_POSITION, 1, 0, 0, 0, *g1.default_joint_pos(model)])
    np.testing.assert_allclose(np.asarray(key.ctrl)[list(g1.actuator_order(model))], g1.default_joint_pos(model))


@pytest.mark.parametrize(
    ("joint", "scale"),
    [
        ("left_elbow_joint", 0.438577),
        ("right_hip_yaw_joint", 0.547546),
        ("left_knee_joint", 0.350661),
        ("right_wrist_yaw_joint", 0.0745009),
        ("waist_roll_joint", 0.438577),
    ],
)
def test_action_scale(model: mujoco.MjModel, joint: str, scale: float) -> None:
    scales = dict(zip(g1.joint_names(model), g1.action_scale(model), strict=True))
    assert scales[joint] == pytest.approx(scale, rel=2e-6)


def test_by_joint_wants_one_pattern_for_each_joint() -> None:
    assert g1.by_joint({"left_.*": 1.0, "right_.*": 2.0}, ("right_knee", "left_knee")) == (2.0, 1.0)
    with pytest.raises(ValueError, match="matches 2"):
        g1.by_joint({"left_.*": 1.0, ".*_knee": 2.0}, ("left_knee",))
    with pytest.raises(ValueError, match="matches 0"):
        g1.by_joint({"left_.*": 1.0}, ("waist",))


def test_standing_robot_presses_into_the_ground_and_frames_agree(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("default").id)
    for _ in range(20):
        mujoco.mj_step(model, data)
    force = data.sensor("left_foot_contact_force").data + data.sensor("right_foot_contact_force").data
    assert force[2] < -100  # newtons, towards the ground
    assert data.sensor("left_foot_contact_found").data[0] >= 1
    assert data.sensor("self_collision_found").data[0] == 0
    data.qpos[3:7] = np.array([0.9, 0.3, -0.2, 0.1]) / np.linalg.norm([0.9, 0.3, -0.2, 0.1])
    data.qvel[:6] = [1, 2, 3, 0.4, 0.5, 0.6]
    mujoco.mj_forward(model, data)
    rotation = data.body("pelvis").xmat.reshape(3, 3)
    close(data.sensor("root_lin_vel").data, rotation.T @ [1, 2, 3])
    close(data.sensor("root_ang_vel").data, [0.4, 0.5, 0.6])
    close(data.sensor("root_up").data, rotation[2])
    torso = data.body("torso_link").xmat.reshape(3, 3)
    close(data.sensor("torso_up").data, torso[2])
    close(data.sensor("left_foot_pos").data, data.site("left_foot").xpos)
