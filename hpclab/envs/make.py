"""Build the environments of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from hpclab.config.schema import RunConfig
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import load_task
from hpclab.errors import ConfigError


def make_env(config: RunConfig, *, num_envs: int, device: torch.device, threads: int) -> ManagerEnv:
    """Build `num_envs` environments of the run's task for one rank.

    Args:
        config: the run; its `task` and `env` are read.
        num_envs: environments of this rank.
        device: where tensors live, and on CUDA also the physics.
        threads: CPU threads for physics.

    Raises:
        ConfigError: there is no such task, it does not take the motion, or the backend does not run on the device.
    """
    task = load_task(config.task)
    if config.env.motion is not None:
        task = with_motion(config.task, task, Path(config.env.motion))
    sim = make_sim(
        task.model(),
        num_envs,
        device=device,
        num_substeps=task.decimation,
        backend=config.env.backend,
        threads=threads,
        njmax=config.env.njmax or task.njmax,
        nconmax=config.env.nconmax or task.nconmax,
    )
    return ManagerEnv(config.task, task, sim)


def make_single_env(config: RunConfig) -> ManagerEnv:
    """Build one environment on the CPU, whatever the run trains on: for what can be asked of its task.

    Raises:
        ConfigError: there is no such task, or it does not take the motion.
    """
    section = config.env.model_copy(update={"backend": "mujoco"})
    config = config.model_copy(update={"env": section})
    return make_env(config, num_envs=1, device=torch.device("cpu"), threads=1)


def with_motion(name: str, task: TaskSpec, path: Path) -> TaskSpec:
    """Return the task with the motion of a file in place of its own.

    Raises:
        ConfigError: the task follows no motion.
    """
    commands = {
        key: dataclasses.replace(term, params={**term.params, "motion": path}) if "motion" in term.params else term
        for key, term in task.commands.items()
    }
    if commands == task.commands:
        raise ConfigError(f"env.motion: the task {name} follows no motion")
    return dataclasses.replace(task, commands=commands)
