"""Build the algorithm of a run."""

from __future__ import annotations

import importlib
from typing import cast

from hpclab.algorithms.algorithm import Algorithm
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import EnvironmentSpec, VecEnv


def algorithm_for(env: VecEnv, config: RunConfig, collectives: Collectives) -> Algorithm:
    """Build the algorithm that learns from these environments; raises as `make_algorithm`."""
    return make_algorithm(config, EnvironmentSpec.of(env), collectives)


def make_algorithm(config: RunConfig, spec: EnvironmentSpec, collectives: Collectives) -> Algorithm:
    """Build `ALGORITHM`, a class, of the module of this folder that `config.algorithm.name` names.

    Args:
        config: the run.
        spec: of the environments of this rank.
        collectives: the ranks.

    Raises:
        ConfigError: a rank has too few environments for its mini-batches, or the task lacks what a setting needs.
    """
    module = importlib.import_module(f"hpclab.algorithms.{config.algorithm.name}")
    return cast(Algorithm, module.ALGORITHM(config, spec, collectives))
