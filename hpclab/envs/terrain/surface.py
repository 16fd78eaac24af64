"""The ground as tensors: its height anywhere, and where rays meet it. The same on every device, without a simulator."""

from __future__ import annotations

import torch
from torch import Tensor

from hpclab.envs.terrain.shapes import CELL_M, NUM_POINTS, SIZE_M
from hpclab.envs.terrain.terrain import BORDER_M, BORDER_THICKNESS_M, Terrain

_POINTS_PER_M = (NUM_POINTS - 1) / SIZE_M
_CELLS_PER_M = 1 / CELL_M


class Surface:
    """Upper and lower side of a `Terrain`; beyond its border there is nothing."""

    def __init__(self, terrain: Terrain, device: torch.device) -> None:
        tops, bottoms, is_field = terrain.tables()
        self._tops = torch.from_numpy(tops).to(device).flatten()
        self._bottoms = torch.from_numpy(bottoms).to(device).flatten()
        self._is_field = torch.from_numpy(is_field).to(device)
        self._num_rows, self._num_columns = terrain.num_rows, len(terrain.columns)
        self._half_x, self._half_y = terrain.half_x, terrain.half_y

    def sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the heights of the ground's upper and lower side at world points [m], -inf where there is none."""
        row, left = self._patch(x, self._half_x, self._num_rows)
        column, front = self._patch(y, self._half_y, self._num_columns)
        patch = row * self._num_columns + column
        is_field = self._is_field[patch]
        u, i, next_i = self._place(left, is_field)
        v, j, next_j = self._place(front, is_field)
        start = patch * NUM_POINTS**2
        at = start + j * NUM_POINTS
        at_next = start + next_j * NUM_POINTS
        here, diagonal = self._tops[at + i], self._tops[at_next + next_i]
        # a cell is two triangles, split from its first corner to the opposite one
        corner = self._tops[torch.where(u >= v, at + next_i, at_next + i)]
        more, less = torch.maximum(u, v), torch.minimum(u, v)
        field = here + more * (corner - here) + less * (diagonal - corner)
        inside = (x.abs() < self._half_x) & (y.abs() < self._half_y)
        beyond = (x.abs() > self._half_x + BORDER_M) | (y.abs() > self._half_y + BORDER_M)
        top = torch.where(is_field, field, here)
        outside = ~inside
        top = top.masked_fill(outside, 0.0).masked_fill_(beyond, -torch.inf)
        bottom = self._bottoms[at + i].masked_fill_(outside, -BORDER_THICKNESS_M).masked_fill_(beyond, -torch.inf)
        return top, bottom

    def below(self, points: Tensor, max_distance: float) -> tuple[Tensor, Tensor]:
        """Cast rays straight down from (..., 3) world points.

        Returns:
            (...) distances [m], `max_distance` where nothing is hit before; (...) bool, the ray starts in the ground.
        """
        x, y, z = points.unbind(dim=-1)
        top, bottom = self.sides(x, y)
        starts_inside = (z < top) & (z > bottom)
        distance = z - torch.where(starts_inside, bottom, top)
        return distance.masked_fill_(~(distance >= 0), max_distance).clamp_(max=max_distance), starts_inside

    def along(
        self, points: Tensor, directions: Tensor, max_distance: float, *, num_samples: int, num_halvings: int = 10
    ) -> Tensor:
        """Cast rays from (..., 3) world points along (..., 3) unit vectors; return (...) distances [m].

        A ray is sampled at `num_samples` equal distances, and the stretch in which it enters the ground is halved
        `num_halvings` times: what is thinner than a stretch may be missed. `max_distance` where nothing is hit.
        """
        stretch = max_distance / num_samples
        far = torch.arange(1, num_samples + 1, device=points.device) * stretch
        samples = points.unsqueeze(-2) + directions.unsqueeze(-2) * far[:, None]
        x, y, z = samples.unbind(dim=-1)
        under = z < self.sides(x, y)[0]
        first = torch.argmax(under.to(torch.uint8), dim=-1)
        low = first * stretch
        high = low + stretch
        for _ in range(num_halvings):
            middle = (low + high) / 2
            x, y, z = (points + directions * middle.unsqueeze(-1)).unbind(dim=-1)
            hit = z < self.sides(x, y)[0]
            high = torch.where(hit, middle, high)
            low = torch.where(hit, low, middle)
        return high.masked_fill(~under.any(dim=-1), max_distance)

    @staticmethod
    def _patch(position: Tensor, half: float, count: int) -> tuple[Tensor, Tensor]:
        """Return the index of the patch along one axis, and the distance from its rim [m]."""
        index = ((position + half) / SIZE_M).floor().nan_to_num_(nan=0.0).clamp_(0, count - 1)
        return index.long(), position + (half - index * SIZE_M)

    @staticmethod
    def _place(distance: Tensor, is_field: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the place in a cell, in 0..1, and the indices of its first and its second edge."""
        scaled = distance * (is_field * (_POINTS_PER_M - _CELLS_PER_M) + _CELLS_PER_M)
        first = scaled.floor().nan_to_num_(nan=0.0).clamp_(0, NUM_POINTS - 1)
        first = torch.where(is_field, first.clamp(max=NUM_POINTS - 2), first)
        index = first.long()
        return scaled - first, index, (index + 1).clamp_(max=NUM_POINTS - 1)
