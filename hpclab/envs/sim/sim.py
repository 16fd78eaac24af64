"""The one interface to physics. Two backends: `mujoco` (C, CPU threads) and `warp` (mujoco-warp, CUDA or CPU)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import mujoco
import torch
from torch import Tensor


class Sim(Protocol):
    """N independent copies ("worlds") of one model. All tensors are float32 on `device`, of shape (N, ...).

    Every tensor handed out is live: the same memory holds the new values after each call. Only `ctrl` and the tensors
    of `model_field` are for callers to write; the rest is read-only, and the state changes through `write_state` and
    `add_velocity` alone (the mujoco backend keeps it in float64, of which `qpos` and `qvel` are rounded copies).

    When values are fresh:

    | | `qpos`, `qvel` | sensors and fields of position and velocity | contact and acceleration sensors |
    |---|---|---|---|
    | `step` | current | before its last substep, as with mj_step | of its last substep |
    | `write_state` | current | stale | 0 in the worlds written |
    | `add_velocity` | current | stale | unchanged |
    | `forward` | unchanged | current | unchanged |

    So one control step reads: `step`; terminations and rewards; pushes and resets; `forward`; observations, whose
    contact forces are those of the last substep (recorded traces of mjlab 1.6.0 agree).
    """

    model: mujoco.MjModel
    num_envs: int
    num_substeps: int
    """Physics substeps of one `step` (the decimation)."""
    device: torch.device
    qpos: Tensor
    """(N, nq) generalised positions."""
    qvel: Tensor
    """(N, nv) generalised velocities."""
    ctrl: Tensor
    """(N, nu) actuator inputs, in the order of the model's actuators; write it in place before `step`."""
    diverged: Tensor
    """(N,) bool: the state or `ctrl` was NaN, infinite or absurdly large since the world's last `write_state`.

    What such a world's tensors hold is unspecified, and may be NaN on the warp backend: end its episode and reset it.
    """

    def sensor(self, name: str) -> Tensor:
        """Return the live (N, dim) view of one named sensor."""
        ...

    def sensor_history(self, name: str) -> Tensor:
        """Return the live (N, num_substeps, dim) values of one named sensor in each substep of the last `step`."""
        ...

    def field(self, name: str) -> Tensor:
        """Return the live (N, ...) tensor of a derived MjData field (xpos, xquat, site_xpos, cvel, subtree_com, ...).

        Asking for a field the first time makes every later `step` and `forward` refresh it; ask while building. Sensors
        are cheaper: prefer a frame sensor in the model. `forward` refreshes fields of position and velocity only.
        """
        ...

    def model_field(self, name: str) -> Tensor:
        """Give a model field (geom_friction, body_ipos, ...) a value per world; return it, (N, ...), to write in place.

        Call `commit_model` after writing.
        """
        ...

    def commit_model(self) -> None:
        """Make per-world model values take effect, with the constants that follow from them."""
        ...

    def step(self, control: Callable[[], None] | None = None) -> None:
        """Advance every world by `num_substeps` physics substeps of `model.opt.timestep`.

        `ctrl` is constant, unless `control` is given: that is called before each substep, may read `qpos` and `qvel`,
        which are current, and writes `ctrl`.
        """
        ...

    def write_state(self, qpos: Tensor, qvel: Tensor, mask: Tensor) -> None:
        """Put worlds with `mask` (N,) True into state (N, nq), (N, nv), at time 0, warm start and other memory cleared.

        Other worlds are untouched, and their rows of `qpos` and `qvel` may hold anything.
        """
        ...

    def add_velocity(self, delta: Tensor, mask: Tensor) -> None:
        """Add `delta` (N, nv) to the generalised velocities of worlds with `mask` (N,) True; others are untouched.

        A free joint's first three are the world-frame linear velocity [m/s], the next three the angular velocity in
        the body's frame [rad/s].
        """
        ...

    def forward(self) -> None:
        """Compute the quantities of position and velocity at the current state, without advancing it."""
        ...

    def capturing(self) -> AbstractContextManager[None]:
        """Enter while calls are captured in a CUDA graph on torch's current stream."""
        ...

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        """Return how many warnings there were since the last call, by name (bad_qpos, contact_overflow, ...).

        Counts are 0-dimensional tensors where the simulation is on a device, so that nothing waits; 0 says nothing.
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Integration state (with warm start), per-world model values and the live tensors, on the CPU."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`; on the mujoco backend bit for bit.

        Ask for the same fields and model fields before loading as were asked for before saving.

        Raises:
            ValueError: `state` has other tensors or shapes than this simulation.
        """
        ...

    def close(self) -> None:
        """Release threads and device memory; no tensor of this object may be used afterwards."""
        ...
