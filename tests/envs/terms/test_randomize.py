"""What randomisation at startup writes into the model fields of each environment."""

from __future__ import annotations

import math

import mujoco
import pytest
import torch

from hpclab.envs.joints import Joints
from hpclab.envs.robots.go1 import FOOT_GEOMS, go1_on_plane
from hpclab.envs.sim.mujoco_batch import MujocoSim
from hpclab.envs.terms import randomize
from tests.envs.terms.bare_env import bare_env

N = 300


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return go1_on_plane().compile()


def env_of(model: mujoco.MjModel):
    torch.manual_seed(0)
    env = bare_env(N, sim=MujocoSim(model, N))
    env.joints = Joints(env.sim, env.buffers)
    return env


def spread(values: torch.Tensor) -> tuple[float, float]:
    return values.min().item(), values.max().item()


def test_friction_is_shared_by_the_geoms_of_an_environment(model: mujoco.MjModel) -> None:
    env = env_of(model)
    randomize.Friction(env, geoms=FOOT_GEOMS, range=(0.3, 1.2))()
    randomize.Friction(env, geoms=FOOT_GEOMS, range=(1e-4, 1e-2), kind="spin", distribution="log_uniform")()
    friction = env.sim.model_field("geom_friction")
    feet = [model.geom(name).id for name in FOOT_GEOMS]
    assert (friction[:, feet] == friction[:, feet[:1]]).all()
    assert spread(friction[:, feet[0], 0]) == pytest.approx((0.3, 1.2), abs=0.02)
    assert friction[:, feet[0], 1].log().mean().item() == pytest.approx(math.log(1e-3), abs=0.3)
    assert (friction[:, feet, 2] == torch.tensor(model.geom_friction[feet[0], 2], dtype=torch.float32)).all()
    others = [i for i in range(model.ngeom) if i not in feet]
    assert (friction[:, others] == torch.tensor(model.geom_friction[others], dtype=torch.float32)).all()


def test_mass_takes_inertia_with_it_and_inertia_alone_leaves_mass(model: mujoco.MjModel) -> None:
    env = env_of(model)
    trunk = model.body("trunk").id
    mass, inertia = env.sim.model_field("body_mass"), env.sim.model_field("body_inertia")
    before = inertia.clone()
    randomize.Mass(env, bodies=("trunk",), range=(-1.0, 2.0), operation="add")()
    assert spread(mass[:, trunk]) == pytest.approx((4.204, 7.204), abs=0.05)
    torch.testing.assert_close(inertia[:, trunk] / before[:, trunk], (mass[:, trunk] / 5.204)[:, None].expand(N, 3))
    heavier = mass.clone()
    randomize.Inertia(env, bodies=("FR_calf",), range=(0.5, 1.5))()
    factors = inertia[:, model.body("FR_calf").id] / before[:, model.body("FR_calf").id]
    assert spread(factors[:, 0]) == pytest.approx((0.5, 1.5), abs=0.02)
    torch.testing.assert_close(factors[:, 0], factors[:, 2])
    assert torch.equal(mass, heavier)


def test_centre_of_mass_moves_within_its_box(model: mujoco.MjModel) -> None:
    env = env_of(model)
    position = env.sim.model_field("body_ipos")
    before = position.clone()
    randomize.CenterOfMass(env, body="trunk", x=(-0.1, 0.1), y=(0.0, 0.0), z=(0.2, 0.3))()
    moved = position - before
    trunk = model.body("trunk").id
    assert spread(moved[:, trunk, 0]) == pytest.approx((-0.1, 0.1), abs=0.01)
    assert moved[:, trunk, 1].abs().max() == 0
    assert moved[:, trunk, 2].min() >= 0.2 - 1e-6
    moved[:, trunk] = 0
    assert moved.abs().max() == 0


def test_gains_keep_a_position_actuator_consistent(model: mujoco.MjModel) -> None:
    env = env_of(model)
    randomize.Gains(env, stiffness=(0.8, 1.2), damping=(1.0, 2.0))()
    gain, bias = env.sim.model_field("actuator_gainprm"), env.sim.model_field("actuator_biasprm")
    torch.testing.assert_close(gain[:, :, 0], -bias[:, :, 1])
    assert spread(gain[:, 0, 0] / model.actuator_gainprm[0, 0]) == pytest.approx((0.8, 1.2), abs=0.01)
    assert spread(bias[:, 0, 2] / model.actuator_biasprm[0, 2]) == pytest.approx((1.0, 2.0), abs=0.02)
    assert gain[0, 0, 0] / gain[0, 1, 0] != 1


@pytest.mark.parametrize(
    ("name", "field", "operation"),
    [("armature", "dof_armature", "scale"), ("friction", "dof_frictionloss", "add"), ("damping", "dof_damping", "set")],
)
def test_joint_properties(model: mujoco.MjModel, name, field: str, operation) -> None:
    env = env_of(model)
    randomize.JointProperty(env, property=name, range=(0.5, 1.5), joints=("FR_calf_joint",), operation=operation)()
    values = env.sim.model_field(field)
    dof = int(model.jnt_dofadr[model.joint("FR_calf_joint").id])
    unit = model.dof_armature[dof] if operation == "scale" else 1.0
    assert spread(values[:, dof] / unit) == pytest.approx((0.5, 1.5), abs=0.01)
    others = [i for i in range(model.nv) if i != dof]
    assert (values[:, others] == torch.tensor(getattr(model, field)[others], dtype=torch.float32)).all()


def test_gravity_differs_between_environments(model: mujoco.MjModel) -> None:
    env = env_of(model)
    randomize.Gravity(env, x=(-0.5, 0.5), y=(0.0, 0.0), z=(-1.0, 1.0))()
    gravity = env.sim.model_field("opt.gravity")
    assert spread(gravity[:, 0]) == pytest.approx((-0.5, 0.5), abs=0.02)
    assert gravity[:, 1].abs().max() == 0
    assert spread(gravity[:, 2]) == pytest.approx((-10.81, -8.81), abs=0.05)


def test_encoder_bias_at_resets_is_drawn_for_ended_environments_alone(model: mujoco.MjModel) -> None:
    env = env_of(model)
    bias = randomize.EncoderBias(env, range=(-0.015, 0.015))
    bias()
    before = env.joints.encoder_bias.clone()
    assert 0.014 < before.abs().max() <= 0.015
    env.resetting = torch.arange(N) < 10
    bias(env.sim.qpos, env.sim.qvel)
    assert ((env.joints.encoder_bias != before).all(dim=1) == env.resetting).all()
