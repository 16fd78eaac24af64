"""A run that has saved once, without training: for tests of what is made of checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hpclab.algorithms.algorithm import Algorithm
from hpclab.algorithms.make import make_algorithm
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.envs.make import make_single_env
from hpclab.envs.vec_env import EnvironmentSpec
from hpclab.run_folder import RunFolder
from tests.runners.runs import write_config

NUM_ENVS = 3


def save(folder: Path, config: RunConfig) -> tuple[RunFolder, Algorithm, dict[str, int]]:
    """Save a new policy, its normaliser moved as if it had seen something, as iteration 7.

    Returns:
        The run, its algorithm of `NUM_ENVS` environments, and the sizes of the task's observation groups.
    """
    run = write_config(folder, config)
    env = make_single_env(config)
    torch.manual_seed(1)
    algorithm = make_algorithm(config, replace(EnvironmentSpec.of(env), num_envs=NUM_ENVS), Collectives())
    env.close()
    state: dict[str, Any] = algorithm.state_dict()
    for name, values in state["actor"].items():
        if name.endswith(("normalizer.mean", "normalizer.std", "running_mean", "running_var")):
            values.uniform_(0.5, 2.0)
    algorithm.load_state_dict(state)
    shared = {"algorithm": state, "counters": {"iteration": 7, "env_steps": 0, "control_steps": 0}}
    CheckpointStore(run.checkpoints, Collectives(), config_sha256="").save(7, shared=shared, shard=None, num_envs=0)
    return run, algorithm, env.observation_dims
