"""Terrain levels, spawn points, bounds, and being upright on a slope."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from hpclab.envs.terms import contacts, terrain
from hpclab.envs.terrain.terrain import Terrain
from tests.envs.terms.bare_env import bare_env

ROUGH = Terrain()


def test_rows_follow_the_distance_walked() -> None:
    #        far     short    short, standing  in between  easiest  hardest
    row = torch.tensor([3, 3, 3, 3, 0, 9])
    distance = torch.tensor([4.1, 3.0, 0.0, 3.0, 0.0, 4.1])
    asked = torch.tensor([20.0, 6.1, 0.0, 5.9, 20.0, 20.0])
    drawn = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.47])
    assert terrain.decide_rows(row, distance, asked, drawn, num_rows=10).tolist() == [4, 2, 3, 3, 0, 4]


def test_rows_above_the_last_are_drawn_from_all() -> None:
    row = torch.full((1000,), 9)
    drawn = torch.linspace(0.0, 1.0, 1000)
    found = terrain.decide_rows(row, torch.full((1000,), 5.0), torch.zeros(1000), drawn, num_rows=10)
    assert found.bincount().tolist() == pytest.approx([100] * 10, abs=1)


def test_only_ended_environments_change_their_row_and_spawn() -> None:
    torch.manual_seed(0)
    position = torch.zeros(7, 3)
    env = bare_env(7, {"root_pos": position}, trackers={}, episode_length_s=20.0)
    spawns = terrain.Spawns(env, name="spawns", terrain=ROUGH, start_rows=6)
    env.trackers["spawns"] = spawns
    env.commands = {"twist": SimpleNamespace(value=torch.ones(7, 3))}
    levels = terrain.TerrainLevels(env, spawns="spawns", command="twist", position="root_pos")
    assert spawns.column.tolist() == list(range(7))
    assert spawns.row.max() < 6
    before, origins = spawns.row.clone(), spawns.origin.clone()
    env.sensor("root_pos")[:] = spawns.origin + torch.tensor([4.5, 0.0, 0.0])
    levels.step(torch.arange(7) < 3)
    assert (spawns.row - before).tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert (spawns.origin[:3, 0] - origins[:3, 0]).tolist() == [8.0] * 3
    assert torch.equal(spawns.origin[3:], origins[3:])
    expected = torch.tensor(ROUGH.spawns, dtype=torch.float32)[spawns.row, spawns.column]
    assert torch.equal(spawns.origin, expected)
    qpos = torch.zeros(7, 9)
    qpos[:, 2] = 0.3
    terrain.ResetOnPatch(env, spawns="spawns")(qpos, torch.zeros(7, 8))
    torch.testing.assert_close(qpos[:, :3], expected + torch.tensor([0.0, 0.0, 0.3]))


def test_levels_are_of_all_environments_and_of_each_column() -> None:
    env = bare_env(3, {"root_pos": torch.zeros(3, 3)}, trackers={}, commands={"twist": None}, episode_length_s=20.0)
    ground = Terrain(ROUGH.columns[:3], num_rows=4)
    env.trackers["spawns"] = spawns = terrain.Spawns(env, name="spawns", terrain=ground, start_rows=1)
    spawns.column.copy_(torch.tensor([0, 1, 1]))
    spawns.row.copy_(torch.tensor([0, 3, 2]))
    levels = terrain.TerrainLevels(env, spawns="spawns", command="twist", position="root_pos").levels()
    means = {name: (total.item(), count.item()) for name, (total, count) in levels.means.items()}
    assert means == {"mean": (5, 3), "flat": (0, 1), "pyramid_stairs": (5, 2), "pyramid_stairs_inv": (0, 0)}
    highest = {name: level.item() for name, level in levels.maxima.items()}
    columns = {"flat_max": 0, "pyramid_stairs_max": 3, "pyramid_stairs_inv_max": -math.inf}
    assert highest == {"max": 3, **columns}


def test_bounds_lie_short_of_the_border() -> None:
    position = torch.tensor([[59.6, 0.0, 0.0], [-59.8, 0.0, 0.0], [0.0, 47.6, 0.0], [0.0, -47.8, 0.0]])
    out = terrain.OutOfBounds(bare_env(4, {"root_pos": position}), terrain=ROUGH, position="root_pos")
    assert out().tolist() == [False, True, False, True]


def test_a_body_parallel_to_the_slope_is_upright() -> None:
    tilt = math.radians(20)
    slope = torch.tensor([-math.sin(tilt), 0.0, math.cos(tilt)])
    axes = {"x": [[math.cos(tilt), 0.0, math.sin(tilt)], [1.0, 0.0, 0.0]], "y": [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]}
    env = bare_env(2, {name: torch.tensor(axis) for name, axis in axes.items()})
    env.trackers = {"normal": SimpleNamespace(normal=slope.expand(2, 3))}
    upright = terrain.UprightOnTerrain(env, normal="normal", axes=("x", "y"), variance=0.2)
    assert upright().tolist() == pytest.approx([1.0, math.exp(-(math.sin(tilt) ** 2) / 0.2)])


def forces_env(history: torch.Tensor):
    names = ("a", "b")
    sim = SimpleNamespace(sensor_history=lambda name: history[:, :, names.index(name)])
    return bare_env(len(history), sim=sim)


def test_a_force_on_any_part_counts_once_a_substep() -> None:
    history = torch.zeros(2, 4, 2, 3)
    history[0, 1, :, 2] = 11.0
    history[0, 3, 1] = torch.tensor([6.0, 0.0, 8.1])
    history[1, 2, 0, 0] = 10.0  # not above
    env = forces_env(history)
    tracker = contacts.SubstepsWithAnyForce(env, forces=("a", "b"), threshold_n=10.0)
    tracker.after_step()
    assert tracker.count.tolist() == [2.0, 0.0]
    env.trackers = {"touch": tracker}
    assert contacts.touched(env, tracker="touch").tolist() == [True, False]


def test_contact_forces_of_the_last_control_steps() -> None:
    history = torch.zeros(2, 4, 2, 3)
    env = forces_env(history)
    tracker = contacts.ContactForceHistory(env, name="touch", forces=("a", "b"), length=2)
    for newton in (1.0, 2.0, 3.0):
        history[:, :3] = 99.0
        history[:, 3] = torch.tensor([newton, 0.0, 0.0])
        tracker.after_step()
    assert tracker.forces[0, :, 0, 0].tolist() == [2.0, 3.0]
    env.trackers = {"touch": tracker}
    tracker.reset(torch.tensor([False, True]))
    observed = contacts.force_history(env, tracker="touch")
    assert observed.shape == (2, 4)
    assert observed[0].tolist() == pytest.approx([math.log1p(2), math.log1p(2), math.log1p(3), math.log1p(3)])
    assert observed[1].abs().max() == 0
