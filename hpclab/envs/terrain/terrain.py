"""A grid of patches: difficulty grows along x, the shape changes along y; a flat border surrounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from hpclab.envs.robots.legged import TERRAIN
from hpclab.envs.terrain import shapes
from hpclab.envs.terrain.shapes import CELL_M, NUM_POINTS, SIZE_M, Patch, Shape

BORDER_M = 20.0
"""Width of the border, a box 1 m thick with its top at height 0."""
BORDER_THICKNESS_M = 1.0


@dataclass(frozen=True)
class Column:
    """One shape, at every difficulty, and the share of the environments that it gets."""

    name: str
    shape: Shape
    share: float


ROUGH = (
    Column("flat", shapes.flat, 0.2),
    Column("pyramid_stairs", shapes.pyramid_stairs, 0.2),
    Column("pyramid_stairs_inv", shapes.pyramid_stairs_inv, 0.2),
    Column("pyramid_slope", shapes.pyramid_slope, 0.1),
    Column("pyramid_slope_inv", shapes.pyramid_slope_inv, 0.1),
    Column("random_rough", shapes.random_rough, 0.1),
    Column("waves", shapes.waves, 0.1),
)
"""The columns of mjlab 1.6.0's rough terrain."""


class Terrain:
    """R x C patches centred on the world's origin; those of row r have difficulty r / (R - 1).

    Attributes:
        columns: C shapes.
        num_rows: R.
        patches: by row, then column.
        spawns: (R, C, 3) points above which episodes start, in the world [m].
    """

    def __init__(self, columns: Sequence[Column] = ROUGH, *, num_rows: int = 10, seed: int = 0) -> None:
        """Generate the patches; equal seeds give equal ground, on every rank and after every restart."""
        self.columns = tuple(columns)
        self.num_rows = num_rows
        random = np.random.default_rng(seed)
        self.patches = [
            [column.shape(row / max(num_rows - 1, 1), random) for column in columns] for row in range(num_rows)
        ]
        self.half_x, self.half_y = num_rows * SIZE_M / 2, len(columns) * SIZE_M / 2
        self.spawns = np.array(
            [
                [(*self._centre(r, c), patch.spawn_z) for c, patch in enumerate(row)]
                for r, row in enumerate(self.patches)
            ]
        )

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Add the ground to a model, as geoms of one static body."""
        body = spec.worldbody.add_body(name=TERRAIN)
        for r, row in enumerate(self.patches):
            for c, patch in enumerate(row):
                self._add_patch(spec, body, f"{self.columns[c].name}_{r}", self._centre(r, c), patch)
        outer_x, outer_y = self.half_x + BORDER_M, self.half_y + BORDER_M
        z = (-BORDER_THICKNESS_M, 0.0)
        for i, (x, y) in enumerate(
            [
                ((-outer_x, outer_x), (-outer_y, -self.half_y)),
                ((-outer_x, outer_x), (self.half_y, outer_y)),
                ((-outer_x, -self.half_x), (-self.half_y, self.half_y)),
                ((self.half_x, outer_x), (-self.half_y, self.half_y)),
            ]
        ):
            _add_box(body, f"{TERRAIN}_border_{i}", x, y, z)

    def tables(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the ground as arrays for lookups, P = R * C patches by row, then column, K = NUM_POINTS.

        Returns:
            (P, K, K) heights of the surface [m], by y, then x: of points, or of cells where a patch is made of boxes;
            (P, K, K) heights of the underside;
            (P,) whether a patch is a height field.
        """
        patches = [patch for row in self.patches for patch in row]
        tops, bottoms = np.zeros((2, len(patches), NUM_POINTS, NUM_POINTS), np.float32)
        is_field = np.array([patch.heights is not None for patch in patches])
        for i, patch in enumerate(patches):
            if patch.heights is not None:
                tops[i] = patch.heights
                bottoms[i] = patch.heights.min()  # where MuJoCo's rays end that start inside a height field
            for box in patch.boxes:
                x, y = _cells(box.x), _cells(box.y)
                tops[i, y, x], bottoms[i, y, x] = box.z[1], box.z[0]
        return tops, bottoms, is_field

    def deal(self, num_envs: int) -> NDArray[np.int64]:
        """Return the column of each environment: at least one each while they last, else by share, in blocks."""
        shares = np.array([column.share for column in self.columns])
        spare = max(num_envs - len(shares), 0)
        exact = shares / shares.sum() * spare
        counts = np.floor(exact).astype(np.int64)
        by_remainder = np.argsort((exact - counts).round(9), kind="stable")[::-1]  # of equals, the later first
        counts[by_remainder[: spare - counts.sum()]] += 1
        counts += np.arange(len(shares)) < num_envs
        return np.repeat(np.arange(len(shares)), counts)

    def _centre(self, row: int, column: int) -> tuple[float, float]:
        return (row + 0.5) * SIZE_M - self.half_x, (column + 0.5) * SIZE_M - self.half_y

    @staticmethod
    def _add_patch(
        spec: mujoco.MjSpec, body: mujoco.MjsBody, name: str, centre: tuple[float, float], patch: Patch
    ) -> None:
        left, front = centre[0] - SIZE_M / 2, centre[1] - SIZE_M / 2
        for i, box in enumerate(patch.boxes):
            x, y = (left + box.x[0], left + box.x[1]), (front + box.y[0], front + box.y[1])
            _add_box(body, f"{TERRAIN}_{name}_{i}", x, y, box.z)
        if patch.heights is not None:
            low, span = float(patch.heights.min()), max(float(np.ptp(patch.heights)), shapes.HEIGHT_UNIT_M)
            spec.add_hfield(
                name=f"{TERRAIN}_{name}",
                size=[SIZE_M / 2, SIZE_M / 2, span, patch.base_m],
                nrow=NUM_POINTS,
                ncol=NUM_POINTS,
                userdata=((patch.heights - low) / span).ravel(),
            )
            body.add_geom(
                name=f"{TERRAIN}_{name}",
                type=mujoco.mjtGeom.mjGEOM_HFIELD,
                hfieldname=f"{TERRAIN}_{name}",
                pos=[*centre, low],
            )


def _cells(interval: tuple[float, float]) -> slice:
    first, last = round(interval[0] / CELL_M), round(interval[1] / CELL_M)
    assert max(abs(first * CELL_M - interval[0]), abs(last * CELL_M - interval[1])) < 1e-9, "boxes lie on the raster"
    return slice(first, last)


def _add_box(
    body: mujoco.MjsBody, name: str, x: tuple[float, float], y: tuple[float, float], z: tuple[float, float]
) -> None:
    centre = [(low + high) / 2 for low, high in (x, y, z)]
    half = [(high - low) / 2 for low, high in (x, y, z)]
    body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=centre, size=half)
