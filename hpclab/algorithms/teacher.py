"""The teacher of a distillation: the actor of a PPO run."""

from __future__ import annotations

from pathlib import Path

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.inspect import find
from hpclab.checkpoint.state import from_bytes
from hpclab.config.algorithms import PPOSection
from hpclab.config.load import load_config
from hpclab.errors import CheckpointError, ConfigError
from hpclab.models.actor_critic import Actor


def load_teacher(path: str, num_observations: int, num_actions: int) -> Actor:
    """Return the actor of a run's newest whole checkpoint, or of one of its checkpoints, on the CPU.

    Args:
        path: folder of the run or of the checkpoint.
        num_observations: size of the observation group that the teacher will see.
        num_actions: A.

    Raises:
        ConfigError: it is not the folder of a PPO run, or its actor has other observations or actions.
        CheckpointError: the checkpoint cannot be read.
    """
    try:
        folder = next(found for found in find(Path(path)) if (found / disk.MANIFEST_FILE).is_file())
    except (ConfigError, StopIteration) as error:
        raise ConfigError(f"algorithm.teacher: {path} has no checkpoint; name the folder of a PPO run") from error
    config = load_config(folder.parents[1] / "config.yaml")
    if not isinstance(config.algorithm, PPOSection):
        raise ConfigError(f"algorithm.teacher: {path} is a run of {config.algorithm.name}, not of ppo")
    disk.verify(folder)
    file = folder / disk.SHARED_FILE
    try:
        state = from_bytes(file.read_bytes(), str(file))["algorithm"]["actor"]
    except (OSError, KeyError) as error:
        raise CheckpointError(f"algorithm.teacher: {file} cannot be read: {error}") from error
    teacher = Actor(config.actor, num_observations, num_actions)
    try:
        teacher.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(
            f"algorithm.teacher: the actor of {path} does not read the {num_observations} numbers of "
            f"algorithm.teacher_group and act by {num_actions}: {error}"
        ) from error
    return teacher
