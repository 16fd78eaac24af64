"""The GPU backend on a GPU: graphs, streams, and capture as part of a whole control step."""

from __future__ import annotations

import functools
import gc

import mujoco
import pytest
import torch

from hpclab.envs.robots.g1 import g1_on_plane
from hpclab.envs.sim.make import make_sim
from hpclab.envs.sim.mujoco_batch import MujocoSim
from hpclab.envs.sim.warp import WarpSim
from tests.envs.sim.diagnostics import warned

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = 8


@pytest.fixture(scope="module")
def g1() -> mujoco.MjModel:
    return g1_on_plane().compile()


def build(g1: mujoco.MjModel) -> WarpSim:
    sim = make_sim(g1, N, device=torch.device("cuda", 0), num_substeps=4, njmax=150, nconmax=48)
    assert isinstance(sim, WarpSim)
    sim.sensor_history("left_foot_contact_force")
    return sim


def start(sim: MujocoSim | WarpSim, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    key = sim.model.key("default")
    qpos = torch.tensor(key.qpos, dtype=torch.float32).repeat(N, 1)
    qpos[:, 7:] += 0.1 * torch.randn(N, sim.model.nq - 7, generator=generator)
    qpos[:, 2] += 0.02
    qvel = 0.3 * torch.randn(N, sim.model.nv, generator=generator)
    ctrl = torch.tensor(key.ctrl, dtype=torch.float32) + 0.2 * torch.randn(N, sim.model.nu, generator=generator)
    mask = torch.ones(N, dtype=torch.bool, device=sim.device)
    sim.write_state(qpos.to(sim.device), qvel.to(sim.device), mask)
    sim.ctrl.copy_(ctrl)


@pytest.mark.parametrize(("side_stream", "controlled"), [(False, False), (True, False), (False, True)])
def test_replayed_graphs_agree_with_the_cpu(g1: mujoco.MjModel, side_stream: bool, controlled: bool) -> None:
    """`controlled`: each substep is asked for its actuator inputs, and so is a graph of its own."""
    sim, reference = build(g1), MujocoSim(g1, N, num_substeps=4)
    stream = torch.cuda.Stream() if side_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        for seed in range(3):  # plain, captured, replayed
            start(sim, seed)
            start(reference, seed)
            wanted = sim.ctrl.clone()
            control = functools.partial(sim.ctrl.copy_, wanted) if controlled else None
            for _ in range(5):
                sim.step(control)
                reference.step()
            sim.forward()
            reference.forward()
            torch.testing.assert_close(sim.qpos.cpu(), reference.qpos, rtol=0, atol=1e-3)
            for name in ("imu_lin_vel", "left_foot_pos"):
                torch.testing.assert_close(sim.sensor(name).cpu(), reference.sensor(name), rtol=0, atol=5e-3)
    assert gc.isenabled()
    assert warned(sim) == {}
    sim.close()


def test_steps_can_be_captured_in_the_callers_graph(g1: mujoco.MjModel) -> None:
    sim = build(g1)
    side = torch.cuda.Stream()
    middle = sim.ctrl.clone()
    mask = torch.zeros(N, dtype=torch.bool, device="cuda")

    def control_step() -> None:
        sim.ctrl.copy_(middle + 0.1 * sim.qpos[:, 7:])
        sim.step()
        sim.add_velocity(torch.ones_like(sim.qvel), mask)
        sim.write_state(sim.qpos, sim.qvel, mask)
        sim.forward()

    with torch.cuda.stream(side):
        start(sim, 0)
        for _ in range(3):
            control_step()
        start(sim, 1)
        for _ in range(4):
            control_step()
        expected = sim.qpos.clone()
        start(sim, 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"), sim.capturing():
            control_step()
    finally:
        gc.enable()
    with torch.cuda.stream(side):
        for _ in range(4):
            graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(sim.qpos, expected, rtol=0, atol=1e-3)


def test_a_diverged_world_is_flagged_without_a_host_synchronisation(g1: mujoco.MjModel) -> None:
    sim = build(g1)
    start(sim, 0)
    mask = torch.arange(N, device="cuda") == 2
    for _ in range(3):
        sim.step()
        sim.forward()
    broken = torch.full_like(sim.qvel, float("nan"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        sim.write_state(sim.qpos, broken, mask)
        sim.step()
        sim.forward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(sim.diverged, mask)
    assert warned(sim) == {"bad_state": 1}
    start(sim, 0)
    sim.step()
    assert not sim.diverged.any()
