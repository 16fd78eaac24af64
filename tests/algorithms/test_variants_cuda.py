"""Every variant of learning on a GPU: captured in CUDA graphs it computes what it computes without."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from hpclab.algorithms.ppo import PPO
from hpclab.config.schema import SyncSection
from hpclab.envs.vec_env import Step
from hpclab.runners.capture import Captured
from tests.algorithms.scripted import (
    ACTOR_DIM,
    CRITIC_DIM,
    NUM_STEPS,
    make_config,
    script,
    snapshot,
    spec,
)
from tests.algorithms.test_distillation import LSTM, make, parameters, train
from tests.variants import VARIANTS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
NUM_ENVS = 64
ITERATIONS = 5


def trained(variant: str, preset: str, *, graphs: bool) -> dict[str, Tensor]:
    """Train in an environment of random numbers that live in the same memory at every step."""
    device = torch.device("cuda", 0)
    torch.manual_seed(1)
    dims = {"actor": ACTOR_DIM, "critic": CRITIC_DIM}
    config = make_config(NUM_ENVS, SyncSection(preset=preset), variant=variant)
    ppo = PPO(config, spec(NUM_ENVS, device))
    observations = {group: torch.zeros(NUM_ENVS, dim, device=device) for group, dim in dims.items()}
    chance = torch.zeros(NUM_ENVS, device=device)

    def collect() -> None:
        ppo.start_rollout()
        for _ in range(NUM_STEPS):
            actions = ppo.act(observations)
            with torch.inference_mode():
                for values in observations.values():
                    values.normal_()
                dones = chance.uniform_() < 0.1
                ppo.process_step(Step(observations, -actions.square().sum(-1), dones, dones))

    parts_of_an_iteration = [
        Captured(function, name=name, device=device, enabled=graphs, guard=nullcontext)
        for name, function in (
            ("the rollout", collect),
            ("the returns", lambda: ppo.finish_rollout(observations)),
            ("the update", ppo.update),
        )
    ]
    for _ in range(ITERATIONS):
        for captured in parts_of_an_iteration:
            captured()
    assert all((captured._graph is not None) == graphs for captured in parts_of_an_iteration), "not captured"
    result = {name: value.clone() for name, value in (snapshot(ppo) | ppo.memory_state_dict()).items()}
    for captured in parts_of_an_iteration:
        captured.release()
    return result


@pytest.mark.parametrize("preset", ["mjlab", "global"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_graphs_change_no_number(variant: str, preset: str) -> None:
    eager, graphs = (trained(variant, preset, graphs=graphs) for graphs in (False, True))
    assert eager.keys() == graphs.keys()
    for name, value in eager.items():
        # cuDNN adds the gradients of recurrent and convolutional networks in no fixed order.
        torch.testing.assert_close(
            graphs[name], value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("student", [{}, LSTM], ids=["perceptron", "lstm"])
def test_graphs_change_no_number_of_a_distillation(student: dict[str, Any]) -> None:
    device = torch.device("cuda", 0)
    results = []
    for graphs in (False, True):
        distillation = make(NUM_ENVS, student=student, preset="global", device=device)
        data = {name: values.to(device) for name, values in script(NUM_ENVS, 1).items()}
        captured = Captured(
            lambda distillation=distillation, data=data: train(distillation, data, range(1))[0],
            name="the iteration",
            device=device,
            enabled=graphs,
            guard=nullcontext,
        )
        losses = [{name: value.clone() for name, value in captured().items()} for _ in range(ITERATIONS)]
        assert (captured._graph is not None) == graphs, "not captured"
        results.append(losses[-1] | parameters(distillation))
        captured.release()
    for name, value in results[0].items():
        torch.testing.assert_close(
            results[1][name], value, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
