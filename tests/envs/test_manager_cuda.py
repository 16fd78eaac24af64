"""The environment on a GPU: whole control steps without a wait of the host."""

from __future__ import annotations

import pytest
import torch

from hpclab.config.tasks import task_names
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.tasks import load_task

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", task_names())
def test_control_steps_never_wait_for_the_gpu(name: str) -> None:
    device = torch.device("cuda:0")
    spec = load_task(name)
    sim = make_sim(
        spec.model(), 64, device=device, num_substeps=spec.decimation, njmax=spec.njmax, nconmax=spec.nconmax
    )
    env = ManagerEnv(name, spec, sim)
    env.reset()
    actions = torch.randn(20, 64, env.num_actions, device=device)
    for action in actions[:3]:  # kernels are compiled here
        env.step(action)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps = [env.step(action) for action in actions]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for step in steps:
        assert step.rewards.isfinite().all()
        assert all(values.isfinite().all() for values in step.observations.values())
    state = env.state_dict()
    env.load_state_dict(state)
    assert torch.equal(env.observe()["actor"], steps[-1].observations["actor"])
    env.close()
