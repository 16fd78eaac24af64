"""Build the environments of a run."""

from __future__ import annotations

import torch

from hpclab.config.schema import RunConfig
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.tasks import load_task


def make_env(config: RunConfig, *, num_envs: int, device: torch.device, threads: int) -> ManagerEnv:
    """Build `num_envs` environments of the run's task for one rank.

    Args:
        config: the run; its `task` and `env` are read.
        num_envs: environments of this rank.
        device: where tensors live, and on CUDA also the physics.
        threads: CPU threads for physics.

    Raises:
        ConfigError: there is no such task, or the backend does not run on the device.
    """
    task = load_task(config.task)
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
