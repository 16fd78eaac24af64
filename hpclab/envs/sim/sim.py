"""The one interface to physics. Two backends: `mujoco` (C, CPU threads) and `warp` (mujoco-warp, CUDA or CPU)."""

from __future__ import annotations

from typing import Protocol

import mujoco
import torch
from torch import Tensor


class Sim(Protocol):
    """N independent copies ("worlds") of one model. All tensors are float32 on `device`, of shape (N, ...).

    `qpos`, `qvel` and `ctrl` are the live state and inputs: written in place by callers, read by the next `step`,
    `forward` or `write_state`. Every other field is read-only and refreshed by `step` and `forward`. After `step`,
    derived fields (xpos, sensordata, ...) describe the state before the last substep, as with mj_step; after
    `forward` they describe the current state.
    """

    model: mujoco.MjModel
    num_envs: int
    device: torch.device
    qpos: Tensor
    """(N, nq) generalised positions."""
    qvel: Tensor
    """(N, nv) generalised velocities."""
    ctrl: Tensor
    """(N, nu) actuator inputs."""

    def field(self, name: str) -> Tensor:
        """Return the live (N, ...) tensor of a derived MjData field (xpos, xquat, site_xpos, cvel, subtree_com, ...).

        Asking for a field the first time makes every later `step` and `forward` refresh it; ask while building.
        """
        ...

    def sensor(self, name: str) -> Tensor:
        """Return the live (N, dim) view of one named sensor."""
        ...

    def model_field(self, name: str) -> Tensor:
        """Give a model field (geom_friction, body_ipos, ...) a value per world; return it, (N, ...), to write in place.

        Call `commit_model` after writing.
        """
        ...

    def commit_model(self) -> None:
        """Make per-world model values take effect, with the constants that follow from them."""
        ...

    def step(self) -> None:
        """Advance every world by one physics substep of `model.opt.timestep`."""
        ...

    def write_state(self, qpos: Tensor, qvel: Tensor, mask: Tensor) -> None:
        """Put worlds with `mask` (N,) True into a state, at time 0, with warm start and other memory cleared.

        Other worlds are untouched. Derived fields stay stale until `forward`.
        """
        ...

    def forward(self) -> None:
        """Compute every derived field of the current state, without advancing it."""
        ...

    def read_diagnostics(self) -> dict[str, int]:
        """Return warnings since the last call by name (bad_qpos, contact_overflow, ...); waits for the device."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Integration state (with warm start) and per-world model values."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`; on the mujoco backend bit for bit."""
        ...

    def close(self) -> None:
        """Release threads and device memory."""
        ...
