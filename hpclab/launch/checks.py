"""What must hold between a config and the number of ranks, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from hpclab.checkpoint.inspect import find
from hpclab.config.algorithms import DistillationSection
from hpclab.config.schema import RunConfig
from hpclab.distributed.sync import mini_batch_sizes
from hpclab.errors import ConfigError


def check_batches(config: RunConfig, world_size: int) -> None:
    """Check, as every rank will, that the smallest rank's rollout fills its mini-batches.

    Raises:
        ConfigError: it does not.
    """
    mini_batch_sizes(config, world_size)


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
