"""The GPU backend, run on warp's CPU device, against the CPU backend."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import pytest
import torch
from torch import Tensor

from hpclab.envs.robots.cartpole import cartpole
from hpclab.envs.robots.g1 import FOOT_GEOMS, g1_on_plane
from hpclab.envs.sim.compiling import compile_kernels
from hpclab.envs.sim.make import make_sim
from hpclab.envs.sim.mujoco_batch import MujocoSim
from hpclab.envs.sim.warp import WarpSim
from tests.envs.sim.diagnostics import warned

pytestmark = pytest.mark.timeout(900)  # the first test compiles, for minutes where cores are shared

N = 3
CPU = torch.device("cpu")
ALL = torch.ones(N, dtype=torch.bool)


@pytest.fixture(scope="module")
def g1() -> mujoco.MjModel:
    return g1_on_plane().compile()


@pytest.fixture(scope="module")
def g1_pair(g1: mujoco.MjModel) -> tuple[MujocoSim, WarpSim]:
    """One pair for all tests: warp compiles its kernels for about a minute when its cache is empty."""
    pair = (MujocoSim(g1, N, num_substeps=2), WarpSim(g1, N, device=CPU, num_substeps=2, njmax=150, nconmax=48))
    for sim in pair:
        sim.sensor_history("left_foot_contact_force")
        sim.field("cvel")
        sim.model_field("geom_friction")
        sim.model_field("body_ipos")
    return pair


@pytest.fixture(scope="module")
def cartpole_pair() -> tuple[MujocoSim, WarpSim]:
    model = cartpole().compile()
    return MujocoSim(model, N), WarpSim(model, N, device=CPU)


def start(sim: MujocoSim | WarpSim, seed: int) -> None:
    """Stand near the default pose, feet about to touch the ground, each world a little differently."""
    generator = torch.Generator().manual_seed(seed)
    key = sim.model.key("default")
    qpos = torch.tensor(key.qpos, dtype=torch.float32).repeat(N, 1)
    qpos[:, 7:] += 0.1 * torch.randn(N, sim.model.nq - 7, generator=generator)
    qpos[:, 2] += 0.02
    sim.write_state(qpos, 0.3 * torch.randn(N, sim.model.nv, generator=generator), ALL)
    sim.ctrl.copy_(
        torch.tensor(key.ctrl, dtype=torch.float32) + 0.2 * torch.randn(N, sim.model.nu, generator=generator)
    )


def worst(pair: tuple[MujocoSim, WarpSim], read: Callable[[MujocoSim | WarpSim], Tensor]) -> float:
    return float((read(pair[0]) - read(pair[1])).abs().max())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_g1_agrees_for_twenty_substeps(g1_pair: tuple[MujocoSim, WarpSim], seed: int) -> None:
    for sim in g1_pair:
        start(sim, seed)
    touched = 0.0
    for _ in range(10):
        for sim in g1_pair:
            sim.step()
        touched = max(touched, float(g1_pair[0].sensor("left_foot_contact_force").abs().max()))
        assert worst(g1_pair, lambda sim: sim.qpos) < 1e-4  # the promise is 1e-3
        assert worst(g1_pair, lambda sim: sim.qvel) < 2e-2
    assert touched > 10, "no contact was compared"


def test_g1_sensors_and_fields_agree(g1_pair: tuple[MujocoSim, WarpSim]) -> None:
    for sim in g1_pair:
        start(sim, 3)
        for _ in range(10):
            sim.step()
        sim.forward()
    for name, tolerance in {
        "imu_ang_vel": 1e-3,
        "imu_lin_vel": 1e-3,
        "imu_upvector": 1e-5,
        "root_up": 1e-5,
        "torso_up": 1e-5,
        "torso_ang_vel": 1e-3,
        "root_lin_vel": 1e-3,
        "root_ang_vel": 1e-3,
        "root_angmom": 1e-3,
        "left_foot_pos": 1e-5,
        "right_foot_vel": 1e-3,
        "left_foot_contact_found": 0.0,
        "self_collision_found": 0.0,
    }.items():
        assert worst(g1_pair, lambda sim, name=name: sim.sensor(name)) <= tolerance, name  # type: ignore[misc]
    forces = [sim.sensor_history("left_foot_contact_force") for sim in g1_pair]
    assert forces[0].abs().max() > 10
    torch.testing.assert_close(forces[0], forces[1], rtol=0.05, atol=0.5)
    assert worst(g1_pair, lambda sim: sim.field("cvel")) < 1e-3


def test_g1_friction_and_centre_of_mass_take_effect_alike(
    g1: mujoco.MjModel, g1_pair: tuple[MujocoSim, WarpSim]
) -> None:
    feet = [g1.geom(name).id for name in FOOT_GEOMS]
    torso = g1.body("torso_link").id
    saved = [(sim.model_field("geom_friction").clone(), sim.model_field("body_ipos").clone()) for sim in g1_pair]
    for sim in g1_pair:
        sim.model_field("geom_friction")[1, feet, 0] = 0.05
        sim.model_field("body_ipos")[2, torso, 0] += 0.05
        sim.commit_model()
        start(sim, 4)
        sim.write_state(sim.qpos[:1].repeat(N, 1), sim.qvel[:1].repeat(N, 1), ALL)
        sim.ctrl.copy_(sim.ctrl[:1].repeat(N, 1))
        for _ in range(15):
            sim.step()
    assert worst(g1_pair, lambda sim: sim.qpos) < 1e-3
    for sim in g1_pair:
        assert (sim.qpos[1] - sim.qpos[0]).abs().max() > 5e-3
        assert (sim.qpos[2] - sim.qpos[0]).abs().max() > 5e-3
    for sim, (friction, com) in zip(g1_pair, saved, strict=True):
        sim.model_field("geom_friction").copy_(friction)
        sim.model_field("body_ipos").copy_(com)
        sim.commit_model()


def test_cartpole_agrees_for_twenty_substeps(cartpole_pair: tuple[MujocoSim, WarpSim]) -> None:
    generator = torch.Generator().manual_seed(0)
    qpos, qvel = torch.randn(2, N, 2, generator=generator)
    for sim in cartpole_pair:
        sim.write_state(qpos, qvel, ALL)
        sim.ctrl.copy_(qpos[:, :1])
        for _ in range(20):
            sim.step()
    assert worst(cartpole_pair, lambda sim: sim.qpos) < 1e-5


def test_compiling_beforehand_changes_nothing(cartpole_pair: tuple[MujocoSim, WarpSim]) -> None:
    sim = cartpole_pair[1]
    sim.write_state(torch.full((N, 2), 0.1), torch.full((N, 2), 0.3), ALL)
    sim.ctrl.fill_(0.5)
    sim.step()
    before = sim.state_dict()
    sim.step()
    expected = sim.state_dict()["integration"]
    sim.load_state_dict(before)
    compile_kernels(sim)
    after = sim.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    sim.step()
    assert torch.equal(sim.state_dict()["integration"], expected)


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
def test_writes_and_pushes_touch_only_the_masked_worlds(cartpole_pair: tuple[MujocoSim, WarpSim], backend: int) -> None:
    sim = cartpole_pair[backend]
    sim.write_state(torch.full((N, 2), 0.1), torch.full((N, 2), 0.3), ALL)
    sim.step()
    mask = torch.tensor([False, True, False])
    nan = float("nan")
    before = sim.state_dict()["integration"]
    sim.write_state(
        torch.tensor([[nan] * 2, [0.5, 0.6], [nan] * 2]), torch.tensor([[nan] * 2, [0.7, 0.8], [nan] * 2]), mask
    )
    sim.add_velocity(torch.tensor([[nan] * 2, [0.1, 0.1], [nan] * 2]), mask)
    after = sim.state_dict()["integration"]
    assert torch.equal(after[~mask], before[~mask])
    torch.testing.assert_close(sim.qpos[1], torch.tensor([0.5, 0.6]))
    torch.testing.assert_close(sim.qvel[1], torch.tensor([0.8, 0.9]))
    assert after[1, 0] == 0  # time
    assert after[1, 5:7].abs().max() == 0  # warm start


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
def test_control_is_asked_for_before_each_substep_with_the_current_state(
    g1_pair: tuple[MujocoSim, WarpSim], backend: int
) -> None:
    sim = g1_pair[backend]
    start(sim, 4)
    constant = sim.ctrl.clone()
    begin = sim.qpos.clone(), sim.qvel.clone()
    sim.step()
    expected, history = sim.qpos.clone(), sim.sensor_history("left_foot_contact_force").clone()
    sim.write_state(*begin, ALL)
    sim.ctrl.zero_()
    seen: list[Tensor] = []

    def control() -> None:
        seen.append(sim.qpos.clone())
        sim.ctrl.copy_(constant)

    sim.step(control)
    torch.testing.assert_close(sim.qpos, expected)
    torch.testing.assert_close(sim.sensor_history("left_foot_contact_force"), history, rtol=1e-3, atol=1e-2)
    assert len(seen) == sim.num_substeps == 2
    assert torch.equal(seen[0], begin[0])
    assert (seen[1] != begin[0]).any()
    assert (seen[1] != sim.qpos).any()


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
def test_gravity_of_single_worlds(cartpole_pair: tuple[MujocoSim, WarpSim], backend: int) -> None:
    sim = cartpole_pair[backend]
    gravity = sim.model_field("opt.gravity")
    gravity[1] = 0.0
    gravity[2, 2] *= -1.0
    sim.commit_model()
    leaning = torch.tensor([[0.0, 0.1]]).repeat(N, 1)
    sim.write_state(leaning, torch.zeros(N, 2), ALL)
    sim.ctrl.zero_()
    for _ in range(5):
        sim.step()
    assert sim.qvel[0, 1] > 0.01  # falls
    assert abs(float(sim.qvel[1, 1])) < 1e-6
    assert sim.qvel[2, 1] < -0.01  # rises
    gravity.copy_(torch.tensor(sim.model.opt.gravity, dtype=torch.float32).expand(N, 3))
    sim.commit_model()


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
def test_a_diverged_world_is_flagged_and_recovers(g1_pair: tuple[MujocoSim, WarpSim], backend: int) -> None:
    sim = g1_pair[backend]
    start(sim, 6)
    sim.step()
    sim.forward()
    expected = sim.qvel.clone(), sim.sensor("imu_lin_vel").clone()
    warned(sim)
    mask = torch.tensor([False, True, False])
    broken = sim.qvel.clone()
    broken[1, 8] = float("nan")
    sim.write_state(sim.qpos.clone(), broken, mask)
    sim.step()
    assert torch.equal(sim.diverged, mask)
    assert any(name.startswith("bad_") for name in warned(sim))
    assert warned(sim) == {}
    start(sim, 6)
    assert not sim.diverged.any()
    sim.step()
    sim.forward()
    torch.testing.assert_close(sim.qvel, expected[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(sim.sensor("imu_lin_vel"), expected[1], rtol=0, atol=1e-6)
    assert not sim.diverged.any()


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
@pytest.mark.parametrize(("value", "is_bad"), [(torch.nan, True), (torch.inf, False), (1e12, False)])
def test_an_input_that_is_no_number_is_flagged_and_one_beyond_its_range_is_cut(
    cartpole_pair: tuple[MujocoSim, WarpSim], backend: int, value: float, is_bad: bool
) -> None:
    """The range of an actuator makes a number of NaN as well, so that the state alone would not tell."""
    sim = cartpole_pair[backend]
    sim.write_state(torch.zeros(N, 2), torch.zeros(N, 2), ALL)
    sim.ctrl.zero_()
    sim.ctrl[1] = value
    sim.step()
    assert sim.diverged.tolist() == [False, is_bad, False]


@pytest.mark.parametrize("backend", [0, 1], ids=["mujoco", "warp"])
def test_an_endless_input_without_a_range_is_flagged(g1_pair: tuple[MujocoSim, WarpSim], backend: int) -> None:
    """The range of the actuator's force hides it from the state."""
    sim = g1_pair[backend]
    start(sim, 1)
    sim.ctrl[1] = torch.inf
    sim.step()
    assert sim.diverged.tolist() == [False, True, False]


def test_contact_sensors_of_written_worlds_read_zero(g1_pair: tuple[MujocoSim, WarpSim]) -> None:
    for sim in g1_pair:
        start(sim, 7)
        for _ in range(10):
            sim.step()
        sim.forward()
        found = sim.sensor("left_foot_contact_found")
        assert found.max() > 0
        before = found.clone()
        mask = torch.tensor([True, False, True])
        sim.write_state(sim.qpos.clone(), sim.qvel.clone(), mask)
        sim.forward()
        assert torch.equal(found, torch.where(mask[:, None], 0.0, before))


def test_warp_continues_from_its_saved_state(g1: mujoco.MjModel, g1_pair: tuple[MujocoSim, WarpSim]) -> None:
    sim = g1_pair[1]
    sim.model_field("body_ipos")[1, g1.body("torso_link").id, 0] += 0.02
    sim.commit_model()
    start(sim, 8)
    for _ in range(3):
        sim.step()
    state = sim.state_dict()
    for _ in range(3):
        sim.step()
    expected = sim.qpos.clone()
    sim.model_field("body_ipos").copy_(torch.tensor(g1.body_ipos, dtype=torch.float32).expand(N, -1, -1))
    sim.commit_model()
    start(sim, 9)
    sim.step()
    sim.load_state_dict(state)
    for _ in range(3):
        sim.step()
    torch.testing.assert_close(sim.qpos, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("njmax", "nconmax", "expected"),
    [(8, 48, {"constraint_overflow"}), (150, 2, {"contact_overflow", "broadphase_overflow"})],
)
def test_full_arrays_are_reported_by_name(g1: mujoco.MjModel, njmax: int, nconmax: int, expected: set[str]) -> None:
    sim = WarpSim(g1, 1, device=CPU, njmax=njmax, nconmax=nconmax)
    key = g1.key("default")
    sim.write_state(torch.tensor(key.qpos, dtype=torch.float32)[None], torch.zeros(1, g1.nv), torch.tensor([True]))
    sim.ctrl.copy_(torch.tensor(key.ctrl, dtype=torch.float32)[None])
    for _ in range(12):
        sim.step()
    counts = warned(sim)
    assert counts == dict.fromkeys(expected, 1)
    assert warned(sim) == {}
    loads = {name: int(load) for name, load in sim.loads().items()}  # also of what found no place
    assert (loads["rows"] > njmax) == ("constraint_overflow" in expected)
    assert (loads["contacts"] > nconmax) == ("contact_overflow" in expected)


def test_make_sim_chooses_by_device() -> None:
    model = cartpole()
    assert isinstance(make_sim(model, 1, device=CPU), MujocoSim)
    assert isinstance(make_sim(model, 1, device=CPU, backend="warp"), WarpSim)
