"""Contacts that should not happen, followed through every physics substep. K sensed parts, S substeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import Tracker
from hpclab.envs.terms.sensors import history_side_by_side

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


class SubstepsWithAnyForce(Tracker):
    """In how many substeps of the last control step the contact force of any of several parts was exceeded.

    Attributes:
        count: (N,) float, 0 to S.
    """

    def __init__(self, env: ManagerEnv, *, forces: Sequence[str], threshold_n: float) -> None:
        """Name the (3,) force sensors [N]."""
        self._forces = history_side_by_side(env, forces)
        self._squared = threshold_n**2
        self.count = torch.zeros(env.num_envs, device=env.device)

    def after_step(self) -> None:
        """Take in the substeps just simulated."""
        exceeded = self._forces.square().sum(dim=3) > self._squared
        self.count = exceeded.any(dim=2).sum(dim=1, dtype=torch.float32)


def touched(env: ManagerEnv, *, tracker: str) -> Tensor:
    """termination: the tracker counted a substep."""
    count: Tensor = env.trackers[tracker].count
    return count > 0


class ContactForceHistory(Tracker):
    """Net contact forces of several parts in the last control steps.

    Attributes:
        forces: (N, H, K, 3) at the last substep of each control step, in the world frame [N], the newest last; 0 from
            before the episode.
    """

    def __init__(self, env: ManagerEnv, *, name: str, forces: Sequence[str], length: int) -> None:
        """Name the (3,) force sensors, and say how many control steps H are kept."""
        self._history = history_side_by_side(env, forces)
        self.forces = env.buffers.per_env(f"{name}/forces_n", length, len(forces), 3)

    def after_step(self) -> None:
        """Take in the last substep."""
        self.forces.copy_(torch.cat([self.forces[:, 1:], self._history[:, -1:]], dim=1))

    def reset(self, mask: Tensor) -> None:
        """Forget the forces of environments in `mask` (N,)."""
        self.forces.masked_fill_(mask[:, None, None, None], 0.0)


def force_history(env: ManagerEnv, *, tracker: str) -> Tensor:
    """observation: the norms of a `ContactForceHistory`, (N, H * K) [N], compressed as log1p."""
    forces: Tensor = env.trackers[tracker].forces
    norms: Tensor = torch.linalg.vector_norm(forces, dim=3)
    return norms.log1p().flatten(1)
