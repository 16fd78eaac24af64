"""What must hold between a config and the number of ranks, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from hpclab.checkpoint.inspect import find
from hpclab.config.algorithms import DistillationSection, PPOSection
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError


def check_batches(config: RunConfig, world_size: int) -> None:
    """Check that the smallest rank's rollout fills every mini-batch.

    Raises:
        ConfigError: it does not.
    """
    if config.env.num_envs_scope == "per_rank":
        return  # the schema has checked it: it does not depend on the ranks
    smallest = config.env.num_envs // world_size
    if not isinstance(config.algorithm, PPOSection):
        if smallest < 1:
            raise ConfigError(f"env.num_envs={config.env.num_envs} for the whole run, but it has {world_size} ranks")
        return
    samples = smallest * (1 if config.recurrent else config.algorithm.num_steps_per_env)
    needed = config.algorithm.num_mini_batches
    if smallest < 1 or samples < needed:
        what = "environments to recurrent networks" if config.recurrent else "samples an iteration"
        raise ConfigError(
            f"env.num_envs={config.env.num_envs} for the whole run leaves {smallest} to a rank of {world_size}, so "
            f"{samples} {what} for algorithm.num_mini_batches={needed}; "
            "raise env.num_envs or use fewer workers"
        )


def check_teacher(config: RunConfig) -> None:
    """Check that the teacher of a distillation has a checkpoint.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(config.algorithm, DistillationSection):
        return
    try:
        find(Path(config.algorithm.teacher))
    except ConfigError as error:
        raise ConfigError(f"algorithm.teacher: {error}") from error
