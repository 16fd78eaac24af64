"""The algorithm of a run is found by its name."""

import sys
import types
from typing import Any

import pytest
import torch

from hpclab.algorithms.make import algorithm_for, make_algorithm
from hpclab.algorithms.ppo import PPO
from hpclab.config.schema import PPOSection, RunConfig
from hpclab.distributed.collectives import Collectives

PARTS: dict[str, Any] = {
    "observation_dims": {"actor": 2, "critic": 3},
    "num_actions": 1,
    "num_envs": 4,
    "device": torch.device("cpu"),
    "collectives": Collectives(),
}


def test_ppo_is_built_with_its_parts() -> None:
    algorithm = make_algorithm(RunConfig(task="cartpole-balance"), **PARTS)
    assert isinstance(algorithm, PPO)
    assert algorithm.storage.actions.shape == (24, 4, 1)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A config whose algorithm, a file of its own, is only what it was given."""
    module = types.ModuleType("hpclab.algorithms.other")
    module.ALGORITHM = lambda config, **parts: parts  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return RunConfig(task="cartpole-balance").model_copy(update={"algorithm": PPOSection.model_construct(name="other")})


def test_another_file_of_the_folder_is_found_by_its_name(other: RunConfig) -> None:
    built: Any = make_algorithm(other, **PARTS)
    assert built == PARTS | {"step_dt": 1.0, "mirror": None}


def test_it_is_built_for_its_environments(other: RunConfig) -> None:
    of_env = PARTS | {"step_dt": 0.02, "mirror": print}
    alone = of_env.pop("collectives")
    env: Any = types.SimpleNamespace(**of_env)
    built: Any = algorithm_for(env, other, alone)
    assert built == of_env | {"collectives": alone}
