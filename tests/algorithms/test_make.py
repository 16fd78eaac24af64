"""The algorithm of a run is found by its name."""

import sys
import types
from typing import Any

import pytest
import torch

from hpclab.algorithms.make import make_algorithm
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


def test_another_file_of_the_folder_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("hpclab.algorithms.other")
    module.ALGORITHM = lambda config, **parts: ("other", parts["num_envs"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = RunConfig(task="cartpole-balance").model_copy(
        update={"algorithm": PPOSection.model_construct(name="other")}
    )
    assert make_algorithm(config, **PARTS) == ("other", 4)
