"""Every number of the robots' facts against the compiled models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from hpclab.envs.robots import g1, go1, legged

DATA = Path(__file__).parents[2] / "data"
ROBOTS: dict[str, Any] = {"g1": g1, "go1": go1}
FACTS: dict[str, dict[str, Any]] = {robot: json.loads((DATA / f"unitree_{robot}.json").read_text()) for robot in ROBOTS}
# the facts are printed with eight significant digits
RELATIVE, ABSOLUTE = 2e-8, 1e-9


@pytest.fixture(scope="module")
def models() -> dict[str, mujoco.MjModel]:
    return {"g1": g1.g1_on_plane().compile(), "go1": go1.go1_on_plane().compile()}


@pytest.fixture
def model(models: dict[str, mujoco.MjModel], robot: str) -> mujoco.MjModel:
    return models[robot]


def each(part: str) -> pytest.MarkDecorator:
    """Run a test for every entry of one list of the facts of every robot."""
    cases = [(robot, entry) for robot, facts in FACTS.items() for entry in facts[part]]
    return pytest.mark.parametrize(("robot", "entry"), cases, ids=[f"{robot}-{e['name']}" for robot, e in cases])


every_robot = pytest.mark.parametrize("robot", ROBOTS)


def close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=RELATIVE, atol=ABSOLUTE)


def same_rotation(found: object, expected: object) -> None:
    """Quaternions of the facts are rounded, and q and -q are one rotation."""
    a, b = np.asarray(found), np.asarray(expected)
    np.testing.assert_allclose(a * np.sign(a @ b), b, rtol=0, atol=2e-8)


@every_robot
def test_physics_options(model: mujoco.MjModel, robot: str) -> None:
    expected = FACTS[robot]["option"]
    assert model.opt.timestep == expected["timestep"]
    assert model.opt.iterations == expected["iterations"]
    assert model.opt.ls_iterations == expected["ls_iterations"]
    assert model.opt.impratio == expected["impratio"]
    assert model.opt.ccd_iterations == 50
    assert mujoco.mjtIntegrator(model.opt.integrator).name == expected["integrator"]
    assert mujoco.mjtCone(model.opt.cone).name == expected["cone"]
    assert mujoco.mjtSolver(model.opt.solver).name == expected["solver"]
    close(model.opt.gravity, expected["gravity"])


@every_robot
def test_totals(model: mujoco.MjModel, robot: str) -> None:
    expected = FACTS[robot]["totals"]
    assert (model.nq, model.nv, model.nu, model.nbody) == tuple(expected[k] for k in ("nq", "nv", "nu", "nbody"))
    close(model.body_mass.sum(), expected["mass"])


@every_robot
def test_there_are_no_other_bodies_joints_geoms_excludes_or_actuators(model: mujoco.MjModel, robot: str) -> None:
    assert {model.body(i).name for i in range(1, model.nbody)} == {b["name"] for b in FACTS[robot]["bodies"]}
    assert {model.joint(i).name for i in range(model.njnt)} == {j["name"] for j in FACTS[robot]["joints"]}
    assert {model.geom(i).name for i in range(model.ngeom)} == {g["name"] for g in FACTS[robot]["collision_geoms"]}
    assert {model.actuator(i).name for i in range(model.nu)} == {a["name"] for a in FACTS[robot]["actuators"]}
    pairs = {(int(signature) >> 16, int(signature) & 0xFFFF) for signature in model.exclude_signature}
    assert pairs == {tuple(sorted(model.body(name).id for name in pair)) for pair in FACTS[robot]["excludes"]}


@each("bodies")
def test_body(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.body(entry["name"])
    assert model.body(int(found.parentid[0])).name == entry["parent"]
    close(found.pos, entry["pos"])
    same_rotation(found.quat, entry["quat"])
    close(found.mass, [entry["mass"]])
    close(found.ipos, entry["ipos"])
    same_rotation(found.iquat, entry["iquat"])
    close(found.inertia, entry["inertia"])


@each("joints")
def test_joint(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.joint(entry["name"])
    assert model.body(int(found.bodyid[0])).name == entry["body"]
    assert mujoco.mjtJoint(int(found.type[0])).name == entry["type"]
    close(found.axis, entry["axis"])
    close(found.pos, entry["pos"])
    assert bool(found.limited[0]) == entry["limited"]
    close(found.range, entry["range"])
    dof = int(found.dofadr[0])
    close(model.dof_armature[dof], entry["armature"])
    close(model.dof_damping[dof], entry["damping"])
    close(model.dof_frictionloss[dof], entry["frictionloss"])
    assert bool(model.jnt_actfrclimited[found.id]) == entry["actfrclimited"]
    close(model.jnt_actfrcrange[found.id], entry["actfrcrange"])


@each("collision_geoms")
def test_geom(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.geom(entry["name"])
    assert model.body(int(found.bodyid[0])).name == entry["body"]
    assert mujoco.mjtGeom(int(found.type[0])).name == entry["type"]
    close(found.size, entry["size"])
    close(found.pos, entry["pos"])
    same_rotation(found.quat, entry["quat"])
    for field in ("contype", "conaffinity", "condim", "priority"):
        assert int(getattr(found, field)[0]) == entry[field], field
    for field in ("friction", "solref", "solimp"):
        close(getattr(found, field), entry[field])
    close(found.margin, [entry["margin"]])


@each("sites")
def test_site(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.site(entry["name"])
    assert model.body(int(found.bodyid[0])).name == entry["body"]
    close(found.pos, entry["pos"])
    same_rotation(found.quat, entry["quat"])


@every_robot
def test_actuators_stand_in_the_order_of_the_facts(model: mujoco.MjModel, robot: str) -> None:
    assert [model.actuator(i).name for i in range(model.nu)] == [a["name"] for a in FACTS[robot]["actuators"]]


@each("actuators")
def test_actuator(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.actuator(entry["name"])
    assert model.joint(int(found.trnid[0])).name == entry["joint"]
    close(found.gainprm[:3], entry["gainprm"])
    close(found.biasprm[:3], entry["biasprm"])
    close(found.forcerange, entry["forcerange"])
    assert bool(found.ctrllimited[0]) == entry["ctrllimited"]
    assert bool(found.forcelimited[0])


OUR_NAMES = {
    f"feet_ground_contact_{part}_{field}": f"{foot}_foot_contact_{field}"
    for foot, part in [(foot, f"{foot}_ankle_roll_link") for foot in g1.FEET]
    + [(foot, f"{foot}_foot_collision") for foot in go1.FEET]
    for field in ("found", "force")
} | {f"self_collision_pelvis_{field}": f"self_collision_{field}" for field in ("found", "force")}


@each("sensors")
def test_sensor(model: mujoco.MjModel, entry: dict[str, Any]) -> None:
    found = model.sensor(OUR_NAMES.get(entry["name"], entry["name"]))
    assert mujoco.mjtSensor(int(found.type[0])).name == entry["type"]
    assert int(found.dim[0]) == entry["dim"]


@every_robot
def test_default_pose(model: mujoco.MjModel, robot: str) -> None:
    root_position = ROBOTS[robot].ROOT_POSITION
    close(root_position, FACTS[robot]["init_root_pos"])
    key = model.key("default")
    np.testing.assert_allclose(key.qpos[:7], [*root_position, 1, 0, 0, 0])
    names = legged.joint_names(model)
    assert dict(zip(names, key.qpos[7:], strict=True)) == pytest.approx(FACTS[robot]["default_joint_pos"], rel=1e-6)
    np.testing.assert_allclose(np.asarray(key.ctrl)[list(legged.actuator_order(model))], key.qpos[7:])


@pytest.mark.parametrize(
    ("robot", "joint", "scale"),
    [
        ("g1", "left_elbow_joint", 0.438577),
        ("g1", "right_hip_yaw_joint", 0.547546),
        ("g1", "left_knee_joint", 0.350661),
        ("g1", "right_wrist_yaw_joint", 0.0745009),
        ("g1", "waist_roll_joint", 0.438577),
        ("go1", "FL_hip_joint", 0.3727530),
        ("go1", "RR_thigh_joint", 0.3727530),
        ("go1", "RL_calf_joint", 0.2485020),
    ],
)
def test_action_scale(model: mujoco.MjModel, joint: str, scale: float) -> None:
    scales = dict(zip(legged.joint_names(model), legged.action_scale(model), strict=True))
    assert scales[joint] == pytest.approx(scale, rel=2e-6)


def test_by_joint_wants_one_pattern_for_each_joint() -> None:
    assert legged.by_joint({"left_.*": 1.0, "right_.*": 2.0}, ("right_knee", "left_knee")) == (2.0, 1.0)
    with pytest.raises(ValueError, match="matches 2"):
        legged.by_joint({"left_.*": 1.0, ".*_knee": 2.0}, ("left_knee",))
    with pytest.raises(ValueError, match="matches 0"):
        legged.by_joint({"left_.*": 1.0}, ("waist",))
    with pytest.raises(ValueError, match="left_ankel matches none"):
        legged.by_joint({"left_ankel": 1.0}, ("waist",), default=0.0)


@pytest.mark.parametrize(("robot", "newton"), [("g1", 100.0), ("go1", 60.0)])
def test_standing_robot_presses_into_the_ground_and_frames_agree(
    model: mujoco.MjModel, robot: str, newton: float
) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("default").id)
    feet = ROBOTS[robot].FEET
    for _ in range(20):
        mujoco.mj_step(model, data)
    force = sum(data.sensor(f"{foot}_foot_contact_force").data for foot in feet)
    assert force[2] < -newton  # towards the ground
    assert data.sensor(f"{feet[0]}_foot_contact_found").data[0] >= 1
    data.qpos[3:7] = np.array([0.9, 0.3, -0.2, 0.1]) / np.linalg.norm([0.9, 0.3, -0.2, 0.1])
    data.qvel[:6] = [1, 2, 3, 0.4, 0.5, 0.6]
    mujoco.mj_forward(model, data)
    rotation = data.body(ROBOTS[robot].ROOT_BODY).xmat.reshape(3, 3)
    close(data.sensor("root_lin_vel").data, rotation.T @ [1, 2, 3])
    close(data.sensor("root_ang_vel").data, [0.4, 0.5, 0.6])
    close(data.sensor("root_up").data, rotation[2])


@pytest.mark.parametrize("robot", ["g1"])
def test_sensors_of_the_torso_and_of_self_collisions(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("default").id)
    mujoco.mj_step(model, data)
    assert data.sensor("self_collision_found").data[0] == 0
    data.qpos[3:7] = np.array([0.9, 0.3, -0.2, 0.1]) / np.linalg.norm([0.9, 0.3, -0.2, 0.1])
    mujoco.mj_forward(model, data)
    torso = data.body("torso_link").xmat.reshape(3, 3)
    close(data.sensor("torso_up").data, torso[2])
    close(data.sensor("left_foot_pos").data, data.site("left_foot").xpos)
