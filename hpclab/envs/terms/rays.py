"""Rays to the ground: patterns, and trackers that cast them once per control step, just before the observations.

Rewards and terminations therefore see what the previous observation saw. R rays, F feet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.mirror import Reflection
from hpclab.envs.spec import Tracker
from hpclab.envs.terms.sensors import side_by_side
from hpclab.envs.terrain.surface import Surface
from hpclab.envs.terrain.terrain import Terrain

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def grid(size: tuple[float, float], resolution: float) -> Tensor:
    """Return (R, 2) offsets of a centred grid [m], x fastest; `size` is its extent in x and y, ends included."""
    x, y = (torch.arange(round(extent / resolution) + 1) * resolution - extent / 2 for extent in size)
    return torch.stack([x.repeat(len(y)), y.repeat_interleave(len(x))], dim=1)


def ring(radius: float, count: int, *, with_centre: bool = True) -> Tensor:
    """Return (R, 2) offsets [m] of `count` points on a circle, the first ahead, after its centre if wanted."""
    angle = torch.arange(count) * (2 * math.pi / count)
    circle = torch.stack([angle.cos(), angle.sin()], dim=1) * radius
    return torch.cat([torch.zeros(1, 2), circle]) if with_centre else circle


def mirror_image(offsets: Tensor) -> Reflection:
    """Return the mirror image of what (R, 2) rays measure: those left and right of the body's x axis trade places.

    Raises:
        ValueError: a ray has no counterpart.
    """
    image = offsets * torch.tensor([1.0, -1.0])
    distances = torch.cdist(image, offsets, compute_mode="donot_use_mm_for_euclid_dist")
    nearest, source = distances.min(dim=1)
    if nearest.max() > 1e-4:
        raise ValueError("rays without counterparts on the other side of the body")
    return Reflection(tuple(source.tolist()), (1.0,) * len(offsets))


def pinhole(width: int, height: int, field_of_view_deg: float, *, pitch_deg: float = 0.0) -> Tensor:
    """Return (height * width, 3) unit vectors through the pixels of a camera, row after row from the upper left.

    The camera looks along x with y to its left, turned down by `pitch_deg`; `field_of_view_deg` is horizontal.
    """
    half = math.tan(math.radians(field_of_view_deg) / 2)
    left = half * (1 - (2 * torch.arange(width) + 1) / width)
    up = half * height / width * (1 - (2 * torch.arange(height) + 1) / height)
    vectors = torch.stack([torch.ones(height * width), left.repeat(height), up.repeat_interleave(width)], dim=1)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    cos, sin = math.cos(math.radians(pitch_deg)), math.sin(math.radians(pitch_deg))
    turn = torch.tensor([[cos, 0.0, -sin], [0.0, 1.0, 0.0], [sin, 0.0, cos]])
    return vectors @ turn


def turned_by_yaw(offsets: Tensor, axis: Tensor) -> Tensor:
    """Turn (R, 2) offsets by the heading of (..., 3) forward axes in the world: (..., R, 2).

    A body that looks straight up or down counts as looking along x.
    """
    heading = axis[..., None, :2]
    length = torch.linalg.vector_norm(heading, dim=-1, keepdim=True)
    cos, sin = (heading / length.clamp(min=1e-6)).unbind(dim=-1)
    vertical = length.squeeze(-1) <= 1e-6
    cos, sin = cos.masked_fill(vertical, 1.0), sin.masked_fill(vertical, 0.0)
    x, y = offsets.unbind(dim=1)
    return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)


class HeightScan(Tracker):
    """Heights of a body above the ground around it, by rays straight down from the body's own height.

    Attributes:
        height: (N, R) [m]; `max_distance` where nothing is hit.
        hits: (N, R, 3) where rays end, in the world [m].
        missed: (N, R) bool, nothing was hit.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        terrain: Terrain,
        position: str,
        forward_axis: str,
        offsets: Tensor,
        max_distance: float = 5.0,
    ) -> None:
        """Name the sensors of the body's position and forward axis in the world; `offsets` (R, 2) as of `grid`."""
        self._surface = Surface(terrain, env.device)
        self._position, self._axis = env.sensor(position), env.sensor(forward_axis)
        self._offsets = offsets.to(env.device)
        self._max_distance = max_distance
        self.height = env.buffers.per_env(f"{name}/height_m", len(offsets))
        self.hits = env.buffers.per_env(f"{name}/hits_m", len(offsets), 3)
        self.missed = env.buffers.per_env(f"{name}/missed", len(offsets), dtype=torch.bool)

    def before_observations(self) -> None:
        """Cast the rays."""
        turned = turned_by_yaw(self._offsets, self._axis)
        torch.add(self._position[:, None, :2], turned, out=self.hits[:, :, :2])
        self.hits[:, :, 2] = self._position[:, None, 2]
        distance, _ = self._surface.below(self.hits, self._max_distance)
        self.height.copy_(distance)
        self.hits[:, :, 2].sub_(distance)
        torch.ge(distance, self._max_distance, out=self.missed)


def scanned_heights(env: ManagerEnv, *, scan: str) -> Tensor:
    """observation: the heights of a `HeightScan` [m]."""
    height: Tensor = env.trackers[scan].height
    return height


class FootHeightsByRays(Tracker):
    """Height of each foot above the ground below: the lowest of a few downward rays of at most 1 m.

    A ray that starts in the ground counts 0, one that misses counts 1 m. Where all of a foot's rays miss, its height is
    that above 0, within 0..1 m.

    Attributes:
        height: (N, F) [m].
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        terrain: Terrain,
        positions: Sequence[str],
        forward_axes: Sequence[str],
        offsets: Tensor,
    ) -> None:
        """Name each foot's sensors of its position and forward axis in the world; `offsets` (R, 2) as of `ring`."""
        self._surface = Surface(terrain, env.device)
        self._position, self._axis = side_by_side(env, positions), side_by_side(env, forward_axes)
        self._offsets = offsets.to(env.device)
        self._points = torch.zeros(*self._position.shape[:2], len(offsets), 3, device=env.device)
        self.height = env.buffers.per_env(f"{name}/height_m", len(positions))

    def before_observations(self) -> None:
        """Cast the rays."""
        turned = turned_by_yaw(self._offsets, self._axis)
        torch.add(self._position[:, :, None, :2], turned, out=self._points[..., :2])
        self._points[..., 2] = self._position[:, :, None, 2]
        distance, starts_inside = self._surface.below(self._points, 1.0)
        distance = distance.masked_fill_(starts_inside, 0.0)
        nothing = (distance >= 1.0).all(dim=2)
        own = self._position[:, :, 2].clamp(0.0, 1.0)
        torch.where(nothing, own, distance.amin(dim=2), out=self.height)


class DepthImage(Tracker):
    """Distances to the ground along the rays of a camera that is fixed to a body.

    Attributes:
        distance: (N, R) [m]; `max_distance` where nothing is hit.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        terrain: Terrain,
        position: str,
        axes: Sequence[str],
        directions: Tensor,
        max_distance: float = 3.0,
        num_samples: int = 60,
    ) -> None:
        """Name the sensors of the body's position and its x, y and z axes; `directions` (R, 3) as of `pinhole`.

        What is thinner than `max_distance / num_samples` along a ray may be missed.
        """
        self._surface = Surface(terrain, env.device)
        self._position, self._axes = env.sensor(position), side_by_side(env, axes)
        self._directions = directions.to(env.device)
        self._max_distance, self._num_samples = max_distance, num_samples
        self.distance = env.buffers.per_env(f"{name}/distance_m", len(directions))

    def before_observations(self) -> None:
        """Cast the rays."""
        points = self._position[:, None].expand(-1, len(self._directions), -1)
        directions = self._directions @ self._axes
        distance = self._surface.along(points, directions, self._max_distance, num_samples=self._num_samples)
        self.distance.copy_(distance)


def depths(env: ManagerEnv, *, camera: str) -> Tensor:
    """observation: the distances of a `DepthImage`, (N, height * width) [m]."""
    distance: Tensor = env.trackers[camera].distance
    return distance


class TerrainNormal(Tracker):
    """The upward unit normal of the plane through hits of a `HeightScan`; straight up where they define no plane.

    Attributes:
        normal: (N, 3) in the world.
    """

    def __init__(self, env: ManagerEnv, *, name: str, scan: str, every: int) -> None:
        """Fit every `every`-th ray of the scan, which comes before this one among the trackers."""
        self._scan: HeightScan = env.trackers[scan]
        self._every = every
        self.normal = env.buffers.per_env(f"{name}/normal", 3)

    def before_observations(self) -> None:
        """Fit the plane."""
        weight = (~self._scan.missed[:, :: self._every]).double()
        normal = plane_normal(self._scan.hits[:, :: self._every].double(), weight)
        self.normal.copy_(normal)


def plane_normal(points: Tensor, weight: Tensor) -> Tensor:
    """Return the upward unit normals (N, 3) of planes fitted to (N, R, 3) points that count by (N, R) 0 or 1.

    The normal is the covariance's eigenvector of the smallest eigenvalue: straight up unless that is below 0.1 times
    the middle one, the middle one at least 1e-6 times the largest, and at least three points count. Double precision.
    """
    count = weight.sum(dim=1)
    per_point = (weight / count.clamp(min=1.0)[:, None]).unsqueeze(2)
    centred = points - (points * per_point).sum(dim=1, keepdim=True)
    covariance = (centred * per_point).transpose(1, 2) @ centred
    smallest, middle, largest = symmetric_eigenvalues(covariance)
    shifted = covariance - smallest[:, None, None] * torch.eye(3, dtype=points.dtype, device=points.device)
    # rows are normal to the eigenvector; the longest of their cross products is the best conditioned
    crosses = torch.linalg.cross(shifted, shifted.roll(-1, dims=1), dim=2)
    lengths = crosses.norm(dim=2, keepdim=True)
    best = lengths.argmax(dim=1, keepdim=True)
    normal = crosses.gather(1, best.expand(-1, -1, 3)).squeeze(1)
    normal = normal / lengths.amax(dim=1).clamp(min=1e-300)
    upward: Tensor = normal * (1.0 - 2.0 * (normal[:, 2:] < 0))
    is_plane = (count >= 3) & (smallest < 0.1 * middle) & (middle >= 1e-6 * largest)
    upward[:, :2].masked_fill_(~is_plane[:, None], 0.0)
    upward[:, 2].masked_fill_(~is_plane, 1.0)
    return upward


def symmetric_eigenvalues(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvalues of symmetric (N, 3, 3) matrices, ascending, in closed form and so without a wait.

    Source: O. K. Smith 1961, "Eigenvalues of a symmetric 3 x 3 matrix", Communications of the ACM 4.
    """
    mean = matrix.diagonal(dim1=1, dim2=2).mean(dim=1)
    deviation = matrix - mean[:, None, None] * torch.eye(3, dtype=matrix.dtype, device=matrix.device)
    scale = (deviation.square().sum(dim=(1, 2)) / 6).sqrt()
    scaled = deviation / scale.clamp(min=1e-300)[:, None, None]
    a, b, c = scaled.unbind(dim=1)
    half_determinant = (a * torch.linalg.cross(b, c, dim=1)).sum(dim=1) / 2
    angle = half_determinant.clamp(-1.0, 1.0).acos() / 3
    largest = mean + 2 * scale * angle.cos()
    smallest = mean + 2 * scale * (angle + 2 * math.pi / 3).cos()
    return smallest, 3 * mean - largest - smallest, largest
