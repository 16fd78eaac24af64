"""What a config needs of the files it names and of the number of ranks, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from hpclab.checkpoint.inspect import find
from hpclab.config.algorithms import DistillationSection
from hpclab.config.schema import RunConfig
from hpclab.config.tasks import task_problem
from hpclab.distributed.sync import mini_batch_sizes
from hpclab.errors import ConfigError


def check_batches(config: RunConfig, world_size: int) -> None:
    """Check, as every rank will, that the smallest rank's rollout fills its mini-batches.

    Raises:
        ConfigError: it does not.
    """
    mini_batch_sizes(config, world_size)


def check_files(config: RunConfig) -> None:
    """Check that the task's file defines one, that its motion is there, and that a distillation's teacher is saved.

    Raises:
        ConfigError: one of them is not so.
    """
    problem = task_problem(config.task)
    if problem is not None:
        raise ConfigError(f"task: {config.task}: {problem}")
    if config.env.motion is not None and not Path(config.env.motion).is_file():
        raise ConfigError(f"env.motion: {config.env.motion}: no such file")
    if not isinstance(config.algorithm, DistillationSection):
        return
    try:
        find(Path(config.algorithm.teacher))
    except ConfigError as error:
        raise ConfigError(f"algorithm.teacher: {error}") from error
