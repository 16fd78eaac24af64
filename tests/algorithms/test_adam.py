"""Adam against torch's own, and what it spares."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from hpclab.algorithms.adam import Adam

SHAPES = ((5, 3), (5,), (2, 5), (2,))
NUM_STEPS = 4


def parameters() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in SHAPES]


def torch_adam(tensors: list[Tensor]) -> torch.optim.Adam:
    return torch.optim.Adam(tensors, lr=torch.tensor(0.01), fused=True)


def step(optimizer: Adam | torch.optim.Adam, tensors: list[Tensor], number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for tensor in tensors:
        tensor.grad = torch.randn(tensor.shape, generator=generator)
    optimizer.step()


def test_equals_torchs_bit_for_bit() -> None:
    ours, theirs = parameters(), parameters()
    adam, reference = Adam(ours, torch.tensor(0.01)), torch_adam(theirs)
    for number in range(NUM_STEPS):
        step(adam, ours, number)
        step(reference, theirs, number)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], parameters()[0])


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_state_goes_from_torchs_and_back(steps_before: int) -> None:
    """Checkpoints of either can be continued with the other."""
    expected, ours, theirs = parameters(), parameters(), parameters()
    first = torch_adam(expected)
    for number in range(steps_before):
        step(first, expected, number)
    with torch.no_grad():
        for tensor, other, value in zip(ours, theirs, expected, strict=True):
            tensor.copy_(value)
            other.copy_(value)
    adam = Adam(ours, torch.tensor(99.0))
    step(adam, ours, 5)  # what it holds then is replaced
    for tensor, value in zip(ours, expected, strict=True):
        tensor.data.copy_(value)
    adam.load_state_dict(copy.deepcopy(first.state_dict()))
    assert float(adam.learning_rate) == pytest.approx(0.01)
    back = torch_adam(theirs)
    back.load_state_dict(copy.deepcopy(adam.state_dict()))
    for optimizer, tensors in ((first, expected), (adam, ours), (back, theirs)):
        step(optimizer, tensors, NUM_STEPS)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(theirs, expected, strict=True))


@pytest.mark.parametrize("change", [slice(0, 3), slice(None, None, -1)], ids=["fewer", "other shapes"])
def test_a_state_of_other_parameters_is_refused(change: slice) -> None:
    saved = Adam(parameters()[change], torch.tensor(0.01)).state_dict()
    with pytest.raises(ValueError, match=r"optimised parameter"):
        Adam(parameters(), torch.tensor(0.01)).load_state_dict(saved)


def test_torchs_compiler_is_not_imported() -> None:
    code = """
import sys, torch
from hpclab.algorithms.ppo import PPO
from hpclab.config.schema import RunConfig
from hpclab.envs.vec_env import EnvironmentSpec
config = RunConfig.model_validate({"task": "cartpole-balance", "env": {"num_envs": 4}})
dims = {"actor": 2, "critic": 2}
ppo = PPO(config, EnvironmentSpec(observation_dims=dims, num_actions=1, num_envs=4, device=torch.device("cpu")))
ppo.optimizer.step()
ppo.load_state_dict(ppo.state_dict())
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
