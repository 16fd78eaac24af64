"""Ray patterns, scans, foot heights and the plane through a scan."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from hpclab.envs.terms import rays
from hpclab.envs.terrain import shapes
from hpclab.envs.terrain.terrain import Column, Terrain
from tests.envs.terms.bare_env import bare_env

FLAT = Terrain([Column("flat", shapes.flat, 1.0)], num_rows=1)
STAIRS = Terrain([Column("stairs", shapes.pyramid_stairs, 1.0)], num_rows=2)
"""Row 1, of full difficulty, is centred on (4, 0): a platform of 3 m at 0.6 m, steps of 0.3 m."""
AXES = {
    "x": torch.tensor([[1.0, 0.0, 0.0]]),
    "y": torch.tensor([[0.0, 1.0, 0.0]]),
    "z": torch.tensor([[0.0, 0.0, 1.0]]),
}


def test_grid_of_the_height_scan() -> None:
    offsets = rays.grid((1.6, 1.0), 0.1)
    assert offsets.shape == (187, 2)
    assert offsets[0].tolist() == pytest.approx([-0.8, -0.5])
    assert offsets[1].tolist() == pytest.approx([-0.7, -0.5])
    assert offsets[17].tolist() == pytest.approx([-0.8, -0.4])
    assert offsets[-1].tolist() == pytest.approx([0.8, 0.5])


def test_rays_left_and_right_of_the_body_trade_places_in_the_mirror() -> None:
    offsets = rays.grid((0.4, 0.2), 0.1)
    source = torch.tensor(rays.mirror_image(offsets).source)
    torch.testing.assert_close(offsets[source], offsets * torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="counterparts"):
        rays.mirror_image(offsets + torch.tensor([0.0, 0.05]))


def test_ring() -> None:
    assert rays.ring(0.04, 4).tolist() == [
        pytest.approx(point, abs=1e-6) for point in ([0, 0], [0.04, 0], [0, 0.04], [-0.04, 0], [0, -0.04])
    ]
    assert len(rays.ring(0.03, 6, with_centre=False)) == 6


def test_pinhole_looks_ahead_and_down_by_its_pitch() -> None:
    vectors = rays.pinhole(5, 3, 90.0, pitch_deg=30.0)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(15))
    centre = vectors[7].tolist()
    assert centre == pytest.approx([math.cos(math.radians(30)), 0.0, -0.5], abs=1e-6)
    upper_left, upper_right, lower_left = vectors[0], vectors[4], vectors[10]
    assert upper_left[1] > 0 > upper_right[1]
    assert upper_left[2] > lower_left[2]
    flat = rays.pinhole(5, 3, 90.0)
    assert (flat[5, 1] / flat[5, 0]).item() == pytest.approx(0.8)  # the middle of the outermost of five pixels


def test_offsets_turn_with_the_heading_alone() -> None:
    tilted = torch.tensor([[0.0, 0.6, 0.8], [0.0, 0.0, 1.0]])  # heading along y; straight up
    turned = rays.turned_by_yaw(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), tilted)
    torch.testing.assert_close(turned[0], torch.tensor([[0.0, 1.0], [-2.0, 0.0]]))
    torch.testing.assert_close(turned[1], torch.tensor([[1.0, 0.0], [0.0, 2.0]]))


def test_height_scan_over_stairs() -> None:
    sensors = {"pos": torch.tensor([[4.0, 0.0, 0.9]]), "x": torch.tensor([[0.0, 1.0, 0.0]])}
    offsets = torch.tensor([[0.0, 0.0], [1.65, 0.0], [1.95, 0.0], [0.0, 1.65], [30.0, 0.0]])
    scan = rays.HeightScan(
        bare_env(1, sensors), name="scan", terrain=STAIRS, position="pos", forward_axis="x", offsets=offsets
    )
    scan.before_observations()
    # on the platform 0.3 m above ground, then down by a step of 0.1 m each; the last ray leaves the terrain
    assert scan.height[0].tolist() == pytest.approx([0.3, 0.4, 0.5, 0.4, 5.0], abs=1e-6)
    assert scan.missed[0].tolist() == [False, False, False, False, True]
    assert scan.hits[0, 1].tolist() == pytest.approx([4.0, 1.65, 0.5], abs=1e-6)


@pytest.mark.parametrize(
    ("position", "height"),
    [
        ((4.0, 0.0, 0.65), 0.05),  # all rays on the platform
        ((4.0, 1.49, 0.65), 0.05),  # one beyond its edge: the lowest counts
        ((4.0, 1.51, 0.55), 0.0),  # one starts in the platform
        ((4.0, 0.0, 2.2), 1.0),  # all miss: height above 0, cut to 1
        ((4.0, 3.5, 0.01), 0.01),
    ],
)
def test_foot_heights(position: tuple[float, float, float], height: float) -> None:
    sensors = {"pos": torch.tensor([position]), "x": torch.tensor([[1.0, 0.0, 0.0]])}
    feet = rays.FootHeightsByRays(
        bare_env(1, sensors),
        name="feet",
        terrain=STAIRS,
        positions=("pos",),
        forward_axes=("x",),
        offsets=rays.ring(0.04, 4),
    )
    feet.before_observations()
    assert feet.height.item() == pytest.approx(height, abs=1e-6)


def test_depth_image_of_flat_ground() -> None:
    camera = rays.DepthImage(
        bare_env(1, {"pos": torch.tensor([[0.0, 0.0, 1.0]]), **AXES}),
        name="camera",
        terrain=FLAT,
        position="pos",
        axes=("x", "y", "z"),
        directions=rays.pinhole(1, 1, 60.0, pitch_deg=30.0).repeat(2, 1) * torch.tensor([[1.0], [-1.0]]),
    )
    camera.before_observations()
    env = SimpleNamespace(trackers={"camera": camera})
    assert torch.equal(rays.depths(env, camera="camera"), camera.distance)
    assert camera.distance[0].tolist() == pytest.approx([2.0, 3.0], abs=1e-3)  # 1 m / sin 30; nothing above


def test_plane_normal_agrees_with_an_eigenvalue_solver() -> None:
    torch.manual_seed(0)
    slope = torch.randn(200, 2, 1, dtype=torch.float64) * 0.5
    points = torch.rand(200, 32, 3, dtype=torch.float64) * 2
    points[:, :, 2] = (points[:, :, :2] @ slope)[:, :, 0] + 0.05 * torch.randn(200, 32)
    weight = (torch.rand(200, 32) < 0.8).double()
    found = rays.plane_normal(points, weight)
    centred = points - (points * weight[:, :, None]).sum(1, keepdim=True) / weight.sum(1)[:, None, None]
    covariance = torch.einsum("nri,nrj,nr->nij", centred, centred, weight)
    values, vectors = torch.linalg.eigh(covariance)
    expected = vectors[:, :, 0] * torch.where(vectors[:, 2:, 0] < 0, -1.0, 1.0)
    clear = values[:, 0] < 0.1 * values[:, 1]
    assert clear.sum() > 150
    torch.testing.assert_close(found[clear], expected[clear], atol=1e-6, rtol=0)
    assert (found[~clear] == torch.tensor([0.0, 0.0, 1.0])).all()


def test_no_plane_means_straight_up() -> None:
    up = [0.0, 0.0, 1.0]
    line = torch.tensor([[[float(i), 0.0, float(i)] for i in range(5)]], dtype=torch.float64)
    assert rays.plane_normal(line, torch.ones(1, 5, dtype=torch.float64))[0].tolist() == up
    ramp = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]], dtype=torch.float64)
    assert rays.plane_normal(ramp, torch.ones(1, 3, dtype=torch.float64))[0].tolist() == pytest.approx(
        [-math.sqrt(0.5), 0.0, math.sqrt(0.5)]
    )
    assert rays.plane_normal(ramp, torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64))[0].tolist() == up
