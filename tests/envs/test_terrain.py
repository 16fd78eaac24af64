"""The generated terrain: its numbers, its rays against MuJoCo's, and how environments are dealt."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from hpclab.envs.terrain import shapes
from hpclab.envs.terrain.surface import Surface
from hpclab.envs.terrain.terrain import ROUGH, Column, Terrain

DOWN = np.array([0.0, 0.0, -1.0])
N = 2000


@pytest.fixture(scope="module")
def terrain() -> Terrain:
    return Terrain((*ROUGH, Column("gap", shapes.gap, 0.1)))


@pytest.fixture(scope="module")
def world(terrain: Terrain) -> tuple[mujoco.MjModel, mujoco.MjData]:
    spec = mujoco.MjSpec()
    terrain.add_to(spec)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def cast(world: tuple[mujoco.MjModel, mujoco.MjData], points: np.ndarray, directions: np.ndarray, far: float):
    hit = np.zeros(1, np.int32)
    found = [mujoco.mj_ray(*world, p, v, None, 1, -1, hit) for p, v in zip(points, directions, strict=True)]
    return np.array([distance if 0 <= distance < far else far for distance in found])


def test_the_rough_terrain_has_the_geoms_and_heights_of_the_reference() -> None:
    rough = Terrain()
    spec = mujoco.MjSpec()
    rough.add_to(spec)
    model = spec.compile()
    kinds = [mujoco.mjtGeom(kind).name for kind in model.geom_type]
    assert (kinds.count("mjGEOM_BOX"), kinds.count("mjGEOM_HFIELD")) == (514, 40)
    assert rough.spawns[:, 0, :2].tolist() == [[-36.0 + 8 * row, -24.0] for row in range(10)]
    by_column = {column.name: rough.spawns[:, i, 2] for i, column in enumerate(rough.columns)}
    slope = [0.005, 0.23, 0.455, 0.685, 0.915, 1.145, 1.375, 1.605, 1.83, 2.065]
    assert by_column["pyramid_slope"] == pytest.approx(slope)
    assert by_column["pyramid_slope_inv"] == pytest.approx([-z for z in slope])
    assert by_column["pyramid_stairs"] == pytest.approx([0.6 * row / 9 for row in range(10)])
    assert by_column["pyramid_stairs_inv"] == pytest.approx([-0.6 * row / 9 for row in range(10)])
    assert set(by_column["random_rough"]) == {0.06}
    assert set(by_column["waves"]) == set(by_column["flat"]) == {0.0}


def test_patches_are_what_their_names_say() -> None:
    random = np.random.default_rng(0)
    rough = shapes.random_rough(0.0, random).heights
    assert set(np.unique(rough.round(6))) == {0.0, 0.02, 0.04, 0.06, 0.08, 0.1}
    waves = shapes.waves(1.0, random).heights
    assert (waves.max(), waves.min()) == (pytest.approx(0.2, abs=0.01), pytest.approx(-0.2, abs=0.01))
    assert waves[2, 2] == pytest.approx(0.1)  # the inner corner: cos(0) + sin(0)
    assert shapes.waves(0.11, random).heights.max() <= 0.02
    for heights in (rough, waves, shapes.pyramid_slope(1.0, random).heights):
        assert not heights[:2].any()
        assert not heights[:, -2:].any()


def test_rays_straight_down_equal_those_of_mujoco(terrain: Terrain, world) -> None:
    random = np.random.default_rng(1)
    points = random.uniform((-62, -54, 0.0), (62, 54, 3.0), (N, 3))
    points[: N // 2] *= (40 / 62, 32 / 54, 1.0)  # many on the patches
    surface = Surface(terrain, torch.device("cpu"))
    found, inside = surface.below(torch.tensor(points, dtype=torch.float32), 2.0)
    expected = cast(world, points, np.broadcast_to(DOWN, points.shape), 2.0)
    assert inside.sum() > 20
    in_stairs_and_slopes = inside.numpy()
    np.testing.assert_allclose(found.numpy()[~in_stairs_and_slopes], expected[~in_stairs_and_slopes], atol=2e-5)
    np.testing.assert_allclose(found.numpy()[in_stairs_and_slopes], expected[in_stairs_and_slopes], atol=2e-5)
    assert (expected < 2.0).mean() > 0.5


def test_slanted_rays_come_close_to_those_of_mujoco(terrain: Terrain, world) -> None:
    random = np.random.default_rng(2)
    surface = Surface(terrain, torch.device("cpu"))
    points = random.uniform((-40, -32, 0), (40, 32, 0), (N // 4, 3)).astype(np.float32)
    points[:, 2] = surface.sides(torch.tensor(points[:, 0]), torch.tensor(points[:, 1]))[0] + 0.4
    directions = random.normal(size=points.shape)
    directions[:, 2] = -np.abs(directions[:, 2])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = surface.along(
        torch.tensor(points), torch.tensor(directions, dtype=torch.float32), 3.0, num_samples=60
    ).numpy()
    errors = np.abs(found - cast(world, points.astype(np.float64), directions, 3.0))
    assert np.quantile(errors, 0.97) < 1e-3  # the others graze an edge between two samples


def test_beyond_the_border_there_is_nothing_and_nan_hits_nothing_odd(terrain: Terrain) -> None:
    surface = Surface(terrain, torch.device("cpu"))
    points = torch.tensor([[70.0, 0.0, 1.0], [0.0, -55.0, 1.0], [torch.nan, 0.0, 1.0], [55.0, 50.0, 1.0]])
    distance, inside = surface.below(points, 5.0)
    assert distance.tolist() == [5.0, 5.0, pytest.approx(distance[2].item(), nan_ok=True), 1.0]
    assert not inside[[0, 1, 3]].any()


def test_environments_are_dealt_by_share() -> None:
    rough = Terrain()
    assert np.bincount(rough.deal(4096)).tolist() == [818, 819, 819, 410, 410, 410, 410]
    assert rough.deal(3).tolist() == [0, 1, 2]
    assert (np.diff(rough.deal(50)) >= 0).all()


def test_equal_seeds_give_equal_ground() -> None:
    one, same, other = Terrain(seed=3), Terrain(seed=3), Terrain(seed=4)
    assert np.array_equal(one.tables()[0], same.tables()[0])
    assert not np.array_equal(one.tables()[0], other.tables()[0])
