"""Environments on a terrain: where each starts, how hard its ground is, and when it has left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import Curriculum, Tracker
from hpclab.envs.terrain.shapes import SIZE_M
from hpclab.envs.terrain.terrain import BORDER_M, Terrain
from hpclab.envs.vec_env import CurriculumLevels

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

_EDGE_M = 0.3
"""Distance from the border's edge at which an episode ends."""


class Spawns(Tracker):
    """The patch of each environment. Its column stays for the whole training, its row is for a curriculum to change.

    Attributes:
        column, row: (N,) int64.
        num_rows: R.
        names: of the C columns.
        origin: (N, 3) spawn point [m].
    """

    def __init__(self, env: ManagerEnv, *, name: str, terrain: Terrain, start_rows: int) -> None:
        """Deal columns by the terrain's shares; draw each row among the first `start_rows`."""
        self.num_rows = terrain.num_rows
        self._table = torch.tensor(terrain.spawns, dtype=torch.float32, device=env.device).flatten(0, 1)
        self.names = [column.name for column in terrain.columns]
        self.column = env.buffers.per_env(f"{name}/column", dtype=torch.int64)
        self.row = env.buffers.per_env(f"{name}/row", dtype=torch.int64)
        self.origin = env.buffers.per_env(f"{name}/origin_m", 3)
        self.column.copy_(torch.from_numpy(terrain.deal(env.num_envs)))
        self.row.copy_(torch.randint(0, start_rows, (env.num_envs,), device=env.device))
        self.place()

    def place(self) -> None:
        """Bring the origins up to date with the rows."""
        self.origin.copy_(self._table[self.row * len(self.names) + self.column])


class TerrainLevels(Curriculum):
    """Harder ground for environments that walk far, easier ground for those that do not; each on its own."""

    def __init__(self, env: ManagerEnv, *, spawns: str, command: str, position: str) -> None:
        """Name the tracker of spawn points, the velocity command and the sensor of the root's position."""
        self._spawns: Spawns = env.trackers[spawns]
        self._command = env.commands[command]
        self._position = env.sensor(position)
        self._episode_length_s = env.episode_length_s
        self._ones = torch.ones(env.num_envs, device=env.device)

    def step(self, ended: Tensor) -> None:
        """Decide the rows of environments in `ended` (N,), from their last position and the command in force."""
        spawns = self._spawns
        distance = (self._position[:, :2] - spawns.origin[:, :2]).norm(dim=1)
        asked = self._command.value[:, :2].norm(dim=1) * self._episode_length_s
        drawn = torch.rand_like(distance)
        decided = decide_rows(spawns.row, distance, asked, drawn, num_rows=spawns.num_rows)
        torch.where(ended, decided, spawns.row, out=spawns.row)
        spawns.place()

    def levels(self) -> CurriculumLevels:
        """Return mean and highest row, 0 the easiest: of all environments, and of those of each column by its name."""
        spawns = self._spawns
        num_columns = len(spawns.names)
        rows = spawns.row.float()
        sums, counts = rows.new_zeros(2, num_columns).index_add_(1, spawns.column, torch.stack([rows, self._ones]))
        highest = rows.new_full((num_columns,), -torch.inf).scatter_reduce_(0, spawns.column, rows, "amax")
        means, maxima = {"mean": (sums.sum(), counts.sum())}, {"max": highest.amax()}
        for name, total, count, top in zip(spawns.names, sums, counts, highest, strict=True):
            means[name], maxima[f"{name}_max"] = (total, count), top
        return CurriculumLevels(means, maxima)


def decide_rows(row: Tensor, distance: Tensor, asked: Tensor, drawn: Tensor, *, num_rows: int) -> Tensor:
    """Return the next row of environments whose episode ended. All (N,).

    One up for a distance of more than half a patch; else one down for less than half of what was asked for, however
    short the episode was. Above the last row comes any row, so that all stay in training.

    Args:
        row: int64, 0 the easiest.
        distance: between the spawn point and where the episode ended [m].
        asked: distance that the command asks for in a full episode [m].
        drawn: uniform in 0..1, chooses among all rows.
        num_rows: number of rows.
    """
    up = distance > SIZE_M / 2
    down = (distance < 0.5 * asked) & ~up
    changed = row + up.long() - down.long()
    anywhere = (drawn * num_rows).long().clamp_(max=num_rows - 1)
    return torch.where(changed >= num_rows, anywhere, changed.clamp(min=0))


class ResetOnPatch:
    """reset: move start states to the environments' spawn points; a later event may offset them."""

    def __init__(self, env: ManagerEnv, *, spawns: str) -> None:
        self._spawns: Spawns = env.trackers[spawns]

    def __call__(self, qpos: Tensor, qvel: Tensor) -> None:
        """Change (N, nq) start states in place."""
        qpos[:, :3].add_(self._spawns.origin)


class OutOfBounds:
    """termination: the root is about to leave the terrain's border."""

    def __init__(self, env: ManagerEnv, *, terrain: Terrain, position: str) -> None:
        self._position = env.sensor(position)
        limits = [terrain.half_x + BORDER_M - _EDGE_M, terrain.half_y + BORDER_M - _EDGE_M]
        self._limits = torch.tensor(limits, device=env.device)

    def __call__(self) -> Tensor:
        """Return the (N,) mask."""
        return (self._position[:, :2].abs() > self._limits).any(dim=1)


class UprightOnTerrain:
    """reward: exp(-norm(n_xy)^2 / variance), n the ground's normal in the body's frame; 1 when parallel to it."""

    def __init__(self, env: ManagerEnv, *, normal: str, axes: tuple[str, str], variance: float) -> None:
        """Name the tracker of the normal, and the sensors of the body's x and y axes in the world."""
        self._normal: Tensor = env.trackers[normal].normal
        self._x, self._y = (env.sensor(axis) for axis in axes)
        self._variance = variance

    def __call__(self) -> Tensor:
        """Return the (N,) reward."""
        x, y = ((axis * self._normal).sum(dim=1) for axis in (self._x, self._y))
        return torch.exp((x.square() + y.square()) / -self._variance)
