"""Build the algorithm of a run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

import torch

from hpclab.algorithms.algorithm import Algorithm
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.envs.mirror import Mirror
from hpclab.envs.vec_env import VecEnv


def algorithm_for(env: VecEnv, config: RunConfig, collectives: Collectives) -> Algorithm:
    """Build the algorithm that learns from these environments; raises as `make_algorithm`."""
    return make_algorithm(
        config,
        observation_dims=env.observation_dims,
        num_actions=env.num_actions,
        num_envs=env.num_envs,
        device=env.device,
        collectives=collectives,
        step_dt=env.step_dt,
        mirror=env.mirror,
    )


def make_algorithm(
    config: RunConfig,
    *,
    observation_dims: dict[str, int],
    num_actions: int,
    num_envs: int,
    device: torch.device,
    collectives: Collectives,
    step_dt: float = 1.0,
    mirror: Callable[[], Mirror | None] | None = None,
) -> Algorithm:
    """Build `ALGORITHM`, a class, of the module of this folder that `config.algorithm.name` names.

    Args:
        config: the run.
        observation_dims: size of each observation group.
        num_actions: A.
        num_envs: N, environments of this rank.
        device: where everything lives.
        collectives: the ranks.
        step_dt: length of a control step [s].
        mirror: returns what observations and actions look like in the mirror, where the task says so.

    Raises:
        ConfigError: a rank has too few environments for its mini-batches, or the task lacks what a setting needs.
    """
    module = importlib.import_module(f"hpclab.algorithms.{config.algorithm.name}")
    algorithm = module.ALGORITHM(
        config,
        observation_dims=observation_dims,
        num_actions=num_actions,
        num_envs=num_envs,
        device=device,
        collectives=collectives,
        step_dt=step_dt,
        mirror=mirror,
    )
    return cast(Algorithm, algorithm)
