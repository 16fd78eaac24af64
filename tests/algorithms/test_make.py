"""The algorithm of a run is found by its name."""

import dataclasses
import sys
import types
from typing import Any

import pytest
import torch

from hpclab.algorithms.make import algorithm_for, make_algorithm
from hpclab.algorithms.ppo import PPO
from hpclab.config.schema import PPOSection, RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import EnvironmentSpec

SPEC = EnvironmentSpec(
    observation_dims={"actor": 2, "critic": 3}, num_actions=1, num_envs=4, device=torch.device("cpu"), step_dt=0.02
)
ALONE = Collectives()


def test_ppo_is_built_with_its_parts() -> None:
    algorithm = make_algorithm(RunConfig(task="cartpole-balance"), SPEC, ALONE)
    assert isinstance(algorithm, PPO)
    assert algorithm.storage.actions.shape == (24, 4, 1)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A config whose algorithm, a file of its own, is only what it was given."""
    module = types.ModuleType("hpclab.algorithms.other")
    module.ALGORITHM = lambda *parts: parts  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return RunConfig(task="cartpole-balance").model_copy(update={"algorithm": PPOSection.model_construct(name="other")})


def test_another_file_of_the_folder_is_found_by_its_name(other: RunConfig) -> None:
    built: Any = make_algorithm(other, SPEC, ALONE)
    assert built == (other, SPEC, ALONE)


def test_it_is_built_for_its_environments(other: RunConfig) -> None:
    env: Any = types.SimpleNamespace(**{field.name: getattr(SPEC, field.name) for field in dataclasses.fields(SPEC)})
    built: Any = algorithm_for(env, other, ALONE)
    assert built == (other, SPEC, ALONE)
