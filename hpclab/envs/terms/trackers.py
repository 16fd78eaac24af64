"""Trackers: what terms need to know of contacts and feet beyond the current state. F feet, S substeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant
from hpclab.envs.spec import Tracker
from hpclab.envs.terms.sensors import history_side_by_side, side_by_side

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


_RAY_LENGTH_M = 1.0


class Contacts(Tracker):
    """Contact of each foot with the ground, followed through every physics substep.

    Attributes:
        in_contact: (N, F) bool, at the last substep.
        first_contact: (N, F) bool, landed within the last control step.
        force: (N, F, 3) net force at the last substep, in the world frame [N]; it points into the ground.
        air_time, contact_time: (N, F) time since take-off or landing, 0 in the other phase [s].
    """

    def __init__(self, env: ManagerEnv, *, name: str, found: Sequence[str], force: Sequence[str]) -> None:
        """Name the sensors of each foot: number of contacts, and net force."""
        feet = len(found)
        self._found = side_by_side(env, found)[:, :, 0]
        self._found_history = history_side_by_side(env, found)[:, :, :, 0]
        self._substep_dt = env.substep_dt
        num_substeps = self._found_history.shape[1]
        self._ordinals = torch.arange(1.0, num_substeps + 1, device=env.device)[:, None]
        self._over = torch.zeros(env.num_envs, num_substeps, 2 * feet, dtype=torch.bool, device=env.device)
        self._touching, self._flying = self._over[:, :, :feet], self._over[:, :, feet:]
        self._touching_last = self._touching[:, -1]
        self._zero, self._half = constant(0.0, env.device), constant(0.5, env.device)
        self._step_dt = constant(num_substeps * env.substep_dt, env.device)
        self._landing_window_s = constant(env.step_dt + 1e-6, env.device)
        self._times = env.buffers.per_env(f"{name}/times_s", 2 * feet)
        self.force = side_by_side(env, force)
        self.air_time = self._times[:, :feet]
        self.contact_time = self._times[:, feet:]
        self.in_contact = torch.zeros(env.num_envs, feet, dtype=torch.bool, device=env.device)
        self.first_contact = torch.zeros_like(self.in_contact)

    def after_step(self) -> None:
        """Take in the substeps just simulated."""
        # True in substeps in which a time is over: air time in contact, contact time without
        torch.gt(self._found_history, self._half, out=self._touching)
        torch.gt(self._half, self._found_history, out=self._flying)
        last_over = torch.where(self._over, self._ordinals, self._zero).amax(dim=1)  # 1 to S, 0: in no substep
        self._times.masked_fill_(last_over > self._zero, 0.0)
        self._times.add_(self._step_dt).add_(last_over, alpha=-self._substep_dt)
        self.in_contact = self._touching_last
        self.first_contact = self.in_contact & (self.contact_time < self._landing_window_s)

    def before_observations(self) -> None:
        """Environments that were reset touch nothing yet."""
        self.in_contact = self._found > self._zero

    def reset(self, mask: Tensor) -> None:
        """Forget the times of environments in `mask` (N,)."""
        self._times.masked_fill_(mask.unsqueeze(1), 0.0)


class FootHeights(Tracker):
    """Height of each foot above flat ground, taken once per control step, just before the observations.

    Rewards therefore see the heights of the previous observation. Downward rays of 1 m would give the same: a foot
    that has sunk into the ground counts 0, one above their reach 1.

    Attributes:
        height: (N, F) [m].
    """

    def __init__(self, env: ManagerEnv, *, name: str, positions: Sequence[str]) -> None:
        """Name each foot's sensor of its position in the world."""
        self._z = side_by_side(env, positions)[:, :, 2]
        self.height = env.buffers.per_env(f"{name}/height_m", len(positions))

    def before_observations(self) -> None:
        """Take in the current heights."""
        torch.clamp(self._z, 0.0, _RAY_LENGTH_M, out=self.height)


class SubstepsWithForce(Tracker):
    """In how many substeps of the last control step a contact force was exceeded.

    Attributes:
        count: (N,) float, 0 to S.
    """

    def __init__(self, env: ManagerEnv, *, force: str, threshold_n: float) -> None:
        """Name the (3,) force sensor [N]."""
        self._force = env.sim.sensor_history(force)
        self._squared = constant(threshold_n**2, env.device)
        self._exceeded = torch.zeros(self._force.shape[:2], device=env.device)
        self.count = torch.zeros(env.num_envs, device=env.device)

    def after_step(self) -> None:
        """Take in the substeps just simulated."""
        torch.gt((self._force * self._force).sum(dim=2), self._squared, out=self._exceeded)
        self.count = self._exceeded.sum(dim=1)
