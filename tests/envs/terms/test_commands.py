"""Velocity commands: what is drawn, for whom, and when."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hpclab.envs.terms.commands import VelocityCommand
from hpclab.envs.terms.curriculum import VelocityRanges, VelocityStage
from tests.envs.terms.bare_env import bare_env

N = 20_000


def velocity_command(num_envs: int = N, yaw: float = 0.0, **changes: Any) -> tuple[VelocityCommand, Any]:
    torch.manual_seed(0)
    axis = torch.tensor([[math.cos(yaw), math.sin(yaw), 0.0]]).repeat(num_envs, 1)
    env = bare_env(num_envs, {"axis": axis}, step_count=torch.zeros(1, dtype=torch.int64))
    settings = {"vx": (-1.0, 1.0), "vy": (-0.5, 0.5), "yaw_rate": (-0.5, 0.5), "resample_s": (3.0, 8.0)}
    command = VelocityCommand(env, name="twist", forward_axis="axis", **(settings | changes))
    env.commands = {"twist": command}
    return command, env


def everyone(command: VelocityCommand) -> torch.Tensor:
    return torch.ones(len(command.value), dtype=torch.bool)


def test_draws_are_uniform_within_their_ranges() -> None:
    command, _ = velocity_command()
    command.update(everyone(command))
    for column, limit in enumerate((1.0, 0.5, 0.5)):
        drawn = command.value[:, column]
        assert drawn.abs().max() <= limit
        assert abs(drawn.mean()) < 0.02
        assert drawn.var().item() == pytest.approx(limit**2 / 3, rel=0.05)


def test_shares_stand_walk_forward_and_follow_a_heading() -> None:
    command, _ = velocity_command(standing=0.1, forward_only=0.2, follow_heading=0.3)
    command.update(everyone(command))
    vx, vy, yaw_rate = command.value.unbind(dim=1)
    stands = (command.value == 0).all(dim=1)
    forward = (vx > 0) & (vy == 0) & (yaw_rate == 0)
    assert stands.float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert forward.float().mean().item() == pytest.approx(0.9 * 0.2, abs=0.01)
    assert vx[forward].min() == pytest.approx(0.3)
    assert vx[forward].max() <= 1.0
    # Errors beyond 1 rad are clipped to the ends of the range: 1 - 1 / pi of those that follow a heading.
    clipped = (yaw_rate.abs() == 0.5).float().mean().item()
    assert clipped == pytest.approx(0.9 * 0.8 * 0.3 * (1 - 1 / math.pi), abs=0.01)


def test_yaw_rate_is_proportional_to_the_shorter_way_to_the_heading() -> None:
    command, _ = velocity_command(1, yaw=3.0, heading=(-3.0, -3.0), follow_heading=1.0)
    command.update(everyone(command))
    assert command.value[0, 2].item() == pytest.approx(0.5 * (2 * math.pi - 6.0), abs=1e-5)


def test_only_fresh_and_expired_commands_change() -> None:
    command, _ = velocity_command(4, resample_s=(0.1, 0.1))
    command.update(everyone(command))
    before = command.value.clone()
    command.update(torch.tensor([True, False, False, False]))
    changed = (command.value != before).any(dim=1)
    assert changed.tolist() == [True, False, False, False]
    nobody = torch.zeros(4, dtype=torch.bool)
    for _ in range(3):
        command.update(nobody)
    # 0.02 s have passed four times for the others, thrice for the one that was fresh.
    before = command.value.clone()
    command.update(nobody)
    assert (command.value != before).any(dim=1).tolist() == [False, True, True, True]


def test_speed_active_and_the_two_parts_follow_the_value() -> None:
    command, _ = velocity_command(3, standing=1.0)
    value = torch.tensor([[3.0, -4.0, 0.5], [0.03, 0.0, 0.01], [0.0, 0.0, -0.06]])
    command.hold(value)
    assert torch.equal(command.value, value)
    assert torch.equal(command.linear + command.angular, value)
    assert command.angular[:, :2].abs().max() == 0
    assert command.speed.tolist() == pytest.approx([5.5, 0.04, 0.06])
    assert command.active.tolist() == [1.0, 0.0, 1.0]
    for _ in range(1000):
        command.update(torch.zeros(3, dtype=torch.bool))
    assert torch.equal(command.value, value)
    command.update(torch.tensor([True, False, False]))
    assert command.value[0].tolist() == [0.0, 0.0, 0.0]  # a reset draws again, and here everyone stands


def test_curriculum_widens_the_ranges_at_its_steps() -> None:
    command, env = velocity_command()
    stages = (
        VelocityStage(10, (-1.5, 2.0), (-0.5, 0.5), (-0.7, 0.7)),
        VelocityStage(20, (-2.0, 3.0), (-0.5, 0.5), (-0.7, 0.7)),
    )
    curriculum = VelocityRanges(env, command="twist", stages=stages)
    for step, vx, yaw_rate in ((9, (-1, 1), 0.5), (10, (-1.5, 2), 0.7), (19, (-1.5, 2), 0.7), (20, (-2, 3), 0.7)):
        env.step_count.fill_(step)
        curriculum.step(torch.zeros(3, dtype=torch.bool))
        assert command.ranges[:, 0].tolist() == pytest.approx(list(vx))
        assert command.ranges[1, 2].item() == pytest.approx(yaw_rate)
        bounds = {name: (total / count).item() for name, (total, count) in curriculum.levels().means.items()}
        assert (bounds["vx_min"], bounds["vx_max"]) == pytest.approx(vx)
        assert bounds["yaw_rate_max"] == pytest.approx(yaw_rate)
    command.update(everyone(command))
    assert command.value[:, 0].max() > 2.5
