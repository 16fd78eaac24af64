"""Choose the physics backend of a device."""

from __future__ import annotations

from typing import Literal

import mujoco
import torch

from hpclab.envs.sim.mujoco_batch import MujocoSim
from hpclab.envs.sim.sim import Sim
from hpclab.errors import ConfigError

Backend = Literal["auto", "mujoco", "warp"]


def make_sim(
    model: mujoco.MjModel | mujoco.MjSpec,
    num_envs: int,
    *,
    device: torch.device,
    num_substeps: int = 1,
    backend: Backend = "auto",
    threads: int = 1,
    njmax: int | None = None,
    nconmax: int | None = None,
) -> Sim:
    """Build `num_envs` worlds of one model on `device`.

    Args:
        model: the model, compiled or as a spec.
        num_envs: number of worlds.
        device: where tensors live; CUDA needs the warp backend.
        num_substeps: physics substeps of one `step`.
        backend: "auto" takes mujoco on the CPU and warp on CUDA.
        threads: CPU threads of the mujoco backend.
        njmax: most constraint rows of one world, on the warp backend; None lets it guess.
        nconmax: contacts per world, on average, on the warp backend; None lets it guess.

    Raises:
        ConfigError: the mujoco backend on another device than the CPU.
    """
    compiled = model.compile() if isinstance(model, mujoco.MjSpec) else model
    if backend == "auto":
        backend = "mujoco" if device.type == "cpu" else "warp"
    if backend == "mujoco":
        if device.type != "cpu":
            raise ConfigError(f"the mujoco backend runs on the CPU, not on {device}; use the warp backend there")
        return MujocoSim(compiled, num_envs, num_substeps=num_substeps, threads=threads)
    from hpclab.envs.sim.warp import WarpSim  # opens a context on every visible GPU: import only when used

    return WarpSim(compiled, num_envs, device=device, num_substeps=num_substeps, njmax=njmax, nconmax=nconmax)
