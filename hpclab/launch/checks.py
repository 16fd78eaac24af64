"""What must hold between a config and the number of ranks, checked before anything starts."""

from __future__ import annotations

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
    samples = smallest * config.algorithm.num_steps_per_env
    needed = config.algorithm.num_mini_batches
    if smallest < 1 or samples < needed:
        raise ConfigError(
            f"env.num_envs={config.env.num_envs} for the whole run leaves {smallest} to a rank of {world_size}, so "
            f"{samples} samples an iteration for algorithm.num_mini_batches={needed}; "
            "raise env.num_envs or use fewer workers"
        )
