"""The CPU backend: exact states, per-world models, divergence, diagnostics."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from hpclab.envs.robots.cartpole import cartpole
from hpclab.envs.robots.g1 import FOOT_GEOMS, g1_on_plane
from hpclab.envs.sim.mujoco_batch import MujocoSim

N = 6


@pytest.fixture(scope="module")
def g1() -> mujoco.MjModel:
    return g1_on_plane().compile()


def everywhere(sim: MujocoSim) -> Tensor:
    return torch.ones(sim.num_envs, dtype=torch.bool)


def stand(sim: MujocoSim, seed: int = 0) -> None:
    """Put every world near the default pose, each a little differently."""
    generator = torch.Generator().manual_seed(seed)
    key = sim.model.key("default")
    qpos = torch.tensor(key.qpos, dtype=torch.float32).repeat(sim.num_envs, 1)
    qpos[:, 7:] += 0.1 * torch.randn(sim.num_envs, sim.model.nq - 7, generator=generator)
    qvel = 0.3 * torch.randn(sim.num_envs, sim.model.nv, generator=generator)
    sim.write_state(qpos, qvel, everywhere(sim))
    sim.ctrl.copy_(torch.tensor(key.ctrl, dtype=torch.float32))


def drive(sim: MujocoSim, seed: int, steps: int) -> list[Tensor]:
    """Step under random controls; return everything that a caller can read after each step and forward."""
    generator = torch.Generator().manual_seed(seed)
    middle = torch.tensor(sim.model.key("default").ctrl, dtype=torch.float32)
    seen = []
    for _ in range(steps):
        sim.ctrl.copy_(middle + 0.4 * torch.randn(sim.num_envs, sim.model.nu, generator=generator))
        sim.step()
        seen += [sim.qpos.clone(), sim.qvel.clone(), sim.sensor_history("left_foot_contact_force").clone()]
        sim.forward()
        seen += [sim.sensor("imu_lin_vel").clone(), sim.sensor("right_foot_contact_force").clone()]
        seen += [sim.field("cvel").clone()]
    return seen


def randomised(g1: mujoco.MjModel, threads: int = 1) -> MujocoSim:
    sim = MujocoSim(g1, N, num_substeps=4, threads=threads)
    sim.sensor_history("left_foot_contact_force")
    sim.field("cvel")
    sim.model_field("geom_friction")
    sim.model_field("body_ipos")
    return sim


def randomise(sim: MujocoSim) -> None:
    generator = torch.Generator().manual_seed(5)
    feet = [sim.model.geom(name).id for name in FOOT_GEOMS]
    sim.model_field("geom_friction")[:, feet, 0] = 0.3 + 0.9 * torch.rand(N, 1, generator=generator)
    torso = sim.model.body("torso_link").id
    sim.model_field("body_ipos")[:, torso] += 0.05 * torch.rand(N, 3, generator=generator)
    sim.commit_model()


def test_matches_a_loop_over_single_simulations_bit_for_bit(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, N, num_substeps=4)
    stand(sim)
    data = mujoco.MjData(g1)
    data.qpos[:], data.qvel[:], data.ctrl[:] = sim.qpos[3], sim.qvel[3], sim.ctrl[3]
    for _ in range(5):
        sim.step()
        mujoco.mj_step(g1, data, 4)
    np.testing.assert_array_equal(sim.qpos[3], data.qpos.astype(np.float32))
    np.testing.assert_array_equal(sim.sensor("root_lin_vel")[3], data.sensor("root_lin_vel").data.astype(np.float32))
    np.testing.assert_array_equal(
        sim.sensor("left_foot_contact_force")[3], data.sensor("left_foot_contact_force").data.astype(np.float32)
    )


def test_history_ends_with_the_current_value_and_records_every_substep(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, N, num_substeps=4)
    history = sim.sensor_history("root_lin_vel")
    stand(sim)
    single = MujocoSim(g1, N, num_substeps=1)
    stand(single)
    sim.step()
    for substep in range(4):
        single.step()
        assert torch.equal(history[:, substep], single.sensor("root_lin_vel"))
    assert torch.equal(history[:, -1], sim.sensor("root_lin_vel"))


def test_sensors_are_one_substep_old_after_step_and_current_after_forward(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, N)
    xpos = sim.field("xpos")
    pelvis = g1.body("pelvis").id
    stand(sim)
    sim.forward()
    before = sim.qpos[:, :3].clone()
    sim.step()
    assert torch.equal(xpos[:, pelvis], before)
    force = sim.sensor("left_foot_contact_force").clone()
    sim.forward()
    assert torch.equal(xpos[:, pelvis], sim.qpos[:, :3])
    assert not torch.equal(before, sim.qpos[:, :3])
    assert torch.equal(sim.sensor("left_foot_contact_force"), force)


def test_forward_gives_what_mj_forward_gives_and_leaves_the_physics_alone(g1: mujoco.MjModel) -> None:
    sims = [MujocoSim(g1, N, num_substeps=4) for _ in range(2)]
    for sim in sims:
        stand(sim)
    for _ in range(10):
        for sim in sims:
            sim.step()
        sims[0].forward()
    assert sims[0].sensor("left_foot_contact_force").abs().max() > 0
    rows = [sim.state_dict()["integration"] for sim in sims]
    assert torch.equal(*rows)
    data = mujoco.MjData(g1)
    mujoco.mj_setState(g1, data, rows[0][2].numpy(), int(mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_forward(g1, data)
    for name in ("imu_lin_vel", "imu_ang_vel", "root_angmom", "torso_up", "torso_ang_vel", "right_foot_vel"):
        np.testing.assert_array_equal(sims[0].sensor(name)[2], data.sensor(name).data.astype(np.float32))


def test_continues_bit_for_bit_with_per_world_models(g1: mujoco.MjModel) -> None:
    sim = randomised(g1)
    randomise(sim)
    stand(sim)
    drive(sim, seed=1, steps=3)
    state = {name: tensor.clone() for name, tensor in sim.state_dict().items()}
    expected = drive(sim, seed=2, steps=4)
    again = randomised(g1, threads=2)
    again.load_state_dict(state)
    found = drive(again, seed=2, steps=4)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_the_number_of_threads_changes_nothing(g1: mujoco.MjModel) -> None:
    seen = []
    for threads in (1, 3):
        sim = randomised(g1, threads)
        randomise(sim)
        stand(sim)
        seen.append(drive(sim, seed=3, steps=3))
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_a_state_of_another_simulation_is_refused(g1: mujoco.MjModel) -> None:
    state = MujocoSim(g1, N).state_dict()
    with pytest.raises(ValueError, match=r"integration: .* saved, .* here"):
        MujocoSim(g1, N - 1).load_state_dict(state)
    sim = MujocoSim(g1, N)
    sim.model_field("geom_friction")
    with pytest.raises(ValueError, match="model/geom_friction"):
        sim.load_state_dict(state)


def test_writing_some_worlds_leaves_the_others_exactly_alone() -> None:
    model = cartpole().compile()
    sims = [MujocoSim(model, N) for _ in range(2)]
    for sim in sims:
        sim.write_state(torch.full((N, 2), 0.1), torch.full((N, 2), 1 / 3), everywhere(sim))
        for _ in range(7):
            sim.step()
    mask = torch.tensor([False, True, False, False, True, False])
    nothing = torch.full((N, 2), float("nan"))
    sims[0].write_state(torch.where(mask[:, None], 0.2, nothing), torch.where(mask[:, None], 0.0, nothing), mask)
    assert torch.equal(sims[0].qpos[mask], torch.full((2, 2), 0.2))
    for sim in sims:
        for _ in range(50):
            sim.step()
    rows = [sim.state_dict()["integration"] for sim in sims]
    assert torch.equal(rows[0][~mask], rows[1][~mask])
    assert not torch.equal(rows[0][mask], rows[1][mask])


def test_a_written_world_starts_like_a_new_one(g1: mujoco.MjModel) -> None:
    used, new = MujocoSim(g1, N), MujocoSim(g1, N)
    stand(used)
    drive(used, seed=4, steps=5)
    assert used.sensor("left_foot_contact_force").abs().max() > 0
    for sim in (used, new):
        stand(sim, seed=1)
        assert sim.sensor("left_foot_contact_force").abs().max() == 0
    assert torch.equal(used.state_dict()["integration"][:, : -g1.nu], new.state_dict()["integration"][:, : -g1.nu])
    used.step()
    new.step()
    assert torch.equal(used.qvel, new.qvel)


def test_pushes_add_to_the_exact_velocity() -> None:
    sim = MujocoSim(cartpole().compile(), N)
    sim.write_state(torch.zeros(N, 2), torch.full((N, 2), 0.7), everywhere(sim))
    for _ in range(3):
        sim.step()
    before = sim.state_dict()["integration"]
    mask = torch.arange(N) == 2
    sim.add_velocity(torch.full((N, 2), 0.25), mask)
    after = sim.state_dict()["integration"]
    assert torch.equal(after[~mask], before[~mask])
    # time, 2 positions, 2 velocities
    assert torch.equal(after[2, 3:5], before[2, 3:5] + 0.25)
    assert torch.equal(sim.qvel[2], after[2, 3:5].float())


def test_per_world_friction_and_centre_of_mass_take_effect(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, 2)
    friction, com = sim.model_field("geom_friction"), sim.model_field("body_ipos")
    feet = [g1.geom(name).id for name in FOOT_GEOMS]
    friction[1, feet, 0] = 0.05
    com[1, g1.body("torso_link").id, 0] += 0.03
    sim.commit_model()
    centre = sim.field("subtree_com")
    stand(sim)
    sim.write_state(sim.qpos[:1].repeat(2, 1), sim.qvel[:1].repeat(2, 1), torch.tensor([True, True]))
    sim.forward()
    shift = (centre[1, 0] - centre[0, 0]).norm()
    assert shift == pytest.approx(0.03 * 7.818 / 33.341142, rel=1e-3)
    for _ in range(40):
        sim.step()
    assert (sim.qpos[0] - sim.qpos[1]).abs().max() > 1e-3


def test_unwritten_model_values_keep_all_their_digits(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, 2)
    sim.model_field("body_ipos")[0, 3, 0] = 0.5
    sim.commit_model()
    values = sim.state_dict()["model/body_ipos"].numpy()
    assert values[0, 3, 0] == 0.5
    np.testing.assert_array_equal(values[1], g1.body_ipos)


@pytest.mark.parametrize("bad", ["state", "ctrl"])
def test_a_world_that_is_not_a_number_is_flagged_until_it_is_written(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = MujocoSim(cartpole().compile(), N, num_substeps=2)
    mask = torch.arange(N) == 1
    if bad == "state":
        sim.write_state(torch.full((N, 2), float("nan")), torch.zeros(N, 2), mask)
    else:
        sim.ctrl[1] = float("nan")
    sim.step()
    assert torch.equal(sim.diverged, mask)
    counts = sim.read_diagnostics()
    assert counts == ({"bad_qpos": 1} if bad == "state" else {"bad_ctrl": counts["bad_ctrl"]})
    assert sim.read_diagnostics() == {}
    sim.ctrl.zero_()
    sim.step()
    assert torch.equal(sim.diverged, mask)
    assert torch.isfinite(sim.qpos).all()
    sim.write_state(torch.zeros(N, 2), torch.zeros(N, 2), mask)
    sim.step()
    assert not sim.diverged.any()
    assert not list(tmp_path.iterdir()), "MuJoCo wrote its log file"
    assert capfd.readouterr() == ("", "")


def test_a_state_that_explodes_in_the_last_substep_is_flagged_at_once() -> None:
    sim = MujocoSim(cartpole().compile(), N)
    qvel = torch.zeros(N, 2)
    qvel[4, 1] = 1e13
    sim.write_state(torch.zeros(N, 2), qvel, torch.arange(N) == 4)
    sim.step()
    assert torch.equal(sim.diverged, torch.arange(N) == 4)


def test_unknown_names_say_what_there_is(g1: mujoco.MjModel) -> None:
    sim = MujocoSim(g1, 1)
    with pytest.raises(ValueError, match="no sensor 'imu'; it has imu_ang_vel"):
        sim.sensor("imu")
    with pytest.raises(ValueError, match="'qLD' is not a derived field"):
        sim.field("qLD")
    with pytest.raises(ValueError, match="holds int32"):
        sim.model_field("geom_contype")
