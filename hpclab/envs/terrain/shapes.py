"""Shapes of one square patch of ground, by difficulty. Source: mjlab 1.6.0's rough terrain; gaps are our own.

A patch spans 8 m in x and y from its corner. It is made of boxes whose edges lie on a raster of 0.1 m, or of one height
field of 80 x 80 points. At its rim it is flat at height 0, so that patches fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE_M = 8.0
"""Edge of a patch."""
NUM_POINTS = 80
"""Points of a height field along an edge, and cells of the boxes' raster."""
CELL_M = SIZE_M / NUM_POINTS
"""Edge of a cell of the boxes' raster."""
HEIGHT_UNIT_M = 0.005
"""Heights of height fields are multiples of this."""

_FRAME_POINTS = 2
_INNER_POINTS = NUM_POINTS - 2 * _FRAME_POINTS
_STAIRS_FRAME_M, _STEP_WIDTH_M, _NUM_STEPS = 1.0, 0.3, 5
_MIN_THICKNESS_M = 0.05


@dataclass(frozen=True)
class Box:
    """A box [m], x and y from the patch's corner."""

    x: tuple[float, float]
    y: tuple[float, float]
    z: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Patch:
    """One patch: boxes, or a height field. Episodes start above its centre, at `spawn_z` [m]."""

    spawn_z: float
    boxes: tuple[Box, ...] = ()
    heights: NDArray[np.float64] | None = None
    """(NUM_POINTS, NUM_POINTS) [m], by y, then x."""
    base_m: float = 0.0
    """Thickness of the height field below its lowest point."""


Shape = Callable[[float, np.random.Generator], Patch]
"""Makes a patch of a difficulty in 0..1."""


def flat(difficulty: float, random: np.random.Generator) -> Patch:
    """Flat ground, whatever the difficulty."""
    return Patch(0.0, (Box((0, SIZE_M), (0, SIZE_M), (-1.0, 0.0)),))


def pyramid_stairs(difficulty: float, random: np.random.Generator) -> Patch:
    """Five steps of 0.3 m, each up to 0.1 m high, rise from all sides to a platform of 3 m."""
    step = 0.1 * difficulty
    bottom = -max(step, _MIN_THICKNESS_M)
    tops = [(k + 1) * step for k in range(_NUM_STEPS + 1)]
    return Patch(tops[-1], _rings(tops, [bottom] * len(tops), frame_bottom=bottom))


def pyramid_stairs_inv(difficulty: float, random: np.random.Generator) -> Patch:
    """The same steps lead down to the platform."""
    step = 0.1 * difficulty
    tops = [-(k + 1) * step for k in range(_NUM_STEPS + 1)]
    bottom = tops[-1] - max(step, _MIN_THICKNESS_M)
    return Patch(tops[-1], _rings(tops, [bottom] * len(tops), frame_bottom=bottom))


def gap(difficulty: float, random: np.random.Generator) -> Patch:
    """A platform of 3 m in the middle of a ditch, 0.1 to 0.9 m wide and 1 m deep."""
    width = CELL_M * round((0.1 + 0.8 * difficulty) / CELL_M)
    inner = SIZE_M / 2 - 1.5
    outer = inner - width
    boxes = [
        *_ring(0.0, outer, -1.0, 0.0),
        *_ring(outer, width, -1.5, -1.0),
        Box((inner, SIZE_M - inner), (inner, SIZE_M - inner), (-1.0, 0.0)),
    ]
    return Patch(0.0, tuple(boxes))


def pyramid_slope(difficulty: float, random: np.random.Generator) -> Patch:
    """A pyramid, as steep as 45 degrees along its middle lines, cut off at a platform of nominally 2 m."""
    heights = _slope(difficulty)
    return _height_field(heights, spawn_z=max(float(heights.max()), HEIGHT_UNIT_M))


def pyramid_slope_inv(difficulty: float, random: np.random.Generator) -> Patch:
    """The pyramid's mirror image, a pit."""
    heights = -_slope(difficulty)
    return _height_field(heights, spawn_z=min(float(heights.min()), -HEIGHT_UNIT_M))


def random_rough(difficulty: float, random: np.random.Generator) -> Patch:
    """Every point independently 0.02, 0.04, .. 0.10 m high, whatever the difficulty."""
    inner = 0.02 * random.integers(1, 6, (_INNER_POINTS, _INNER_POINTS)).astype(np.float64)
    return _height_field(_framed(inner), spawn_z=0.06)


def waves(difficulty: float, random: np.random.Generator) -> Patch:
    """Four waves in x and four in y, each up to 0.1 m high and deep."""
    amplitude = _cut(0.1 * difficulty)
    phase = 2 * math.pi * 4 * np.arange(_INNER_POINTS) / _INNER_POINTS
    inner = amplitude * (np.cos(phase)[None, :] + np.sin(phase)[:, None])
    heights = _framed(inner)
    return _height_field(heights, spawn_z=0.0, base_m=max(np.ptp(heights), HEIGHT_UNIT_M) / 4)


def _slope(difficulty: float) -> NDArray[np.float64]:
    half = _INNER_POINTS // 2
    ramp = 1.0 - np.abs(half - np.arange(_INNER_POINTS)) / half
    platform = ramp[half - 10] ** 2
    shape: NDArray[np.float64] = np.minimum(np.outer(ramp, ramp), platform)
    return _framed(_cut(half * 0.1 * difficulty) * shape)


def _cut(height: float) -> float:
    """Round down to the unit of heights; a number that is a multiple but for rounding stays."""
    return math.floor(height / HEIGHT_UNIT_M + 1e-9) * HEIGHT_UNIT_M


def _framed(inner: NDArray[np.float64]) -> NDArray[np.float64]:
    rounded = np.rint(inner / HEIGHT_UNIT_M) * HEIGHT_UNIT_M
    return np.pad(rounded, _FRAME_POINTS)


def _height_field(heights: NDArray[np.float64], *, spawn_z: float, base_m: float | None = None) -> Patch:
    thickness = max(float(np.ptp(heights)), HEIGHT_UNIT_M) if base_m is None else base_m
    return Patch(spawn_z, heights=heights, base_m=thickness)


def _rings(tops: list[float], bottoms: list[float], *, frame_bottom: float) -> tuple[Box, ...]:
    """Return a frame at height 0, concentric steps, and a platform with the last top."""
    boxes = _ring(0.0, _STAIRS_FRAME_M, frame_bottom, 0.0)
    for k in range(_NUM_STEPS):
        boxes += _ring(_STAIRS_FRAME_M + k * _STEP_WIDTH_M, _STEP_WIDTH_M, bottoms[k], tops[k])
    edge = _STAIRS_FRAME_M + _NUM_STEPS * _STEP_WIDTH_M
    inside = (edge, SIZE_M - edge)
    return (*boxes, Box(inside, inside, (bottoms[-1], tops[-1])))


def _ring(inset: float, width: float, bottom: float, top: float) -> list[Box]:
    """Return the four sides of a square ring, its outer edge `inset` from the patch's rim."""
    low, high = (inset, inset + width), (SIZE_M - inset - width, SIZE_M - inset)
    across = (inset, SIZE_M - inset)
    between = (inset + width, SIZE_M - inset - width)
    z = (bottom, top)
    return [Box(across, low, z), Box(across, high, z), Box(low, between, z), Box(high, between, z)]
