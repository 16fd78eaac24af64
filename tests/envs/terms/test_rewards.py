"""Reward terms against numbers worked by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from hpclab.envs.terms import cartpole, rewards
from tests.envs.terms.bare_env import bare_env


def approx(values: list[float]) -> Tensor:
    return pytest.approx(values, rel=1e-6)


def command(linear: list[list[float]], yaw_rate: list[float], active: list[float]) -> SimpleNamespace:
    value = torch.tensor([[*xy, yaw] for xy, yaw in zip(linear, yaw_rate, strict=True)])
    part = torch.tensor([1.0, 1.0, 0.0])
    speed = value[:, :2].norm(dim=1) + value[:, 2].abs()
    return SimpleNamespace(
        value=value, linear=value * part, angular=value * (1 - part), speed=speed, active=torch.tensor(active)
    )


def test_velocity_tracking_counts_vertical_and_tilting_motion_as_error() -> None:
    velocity = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    spin = torch.tensor([[0.0, 0.0, 0.5], [0.5, 0.0, 0.0]])
    env = bare_env(
        2,
        {"v": velocity, "w": spin},
        commands={"twist": command([[1.0, 0.0], [1.0, 0.0]], [0.5, 0.5], [1.0, 1.0])},
    )
    linear = rewards.track_linear_velocity(env, command="twist", velocity="v", variance=0.25)
    angular = rewards.track_angular_velocity(env, command="twist", velocity="w", variance=0.5)
    assert linear.tolist() == approx([1.0, math.exp(-0.5 / 0.25)])
    assert angular.tolist() == approx([1.0, math.exp(-0.5 / 0.5)])


def test_upright_and_sums_of_squares() -> None:
    env = bare_env(1, {"up": torch.tensor([[0.1, 0.3, 0.9]]), "w": torch.tensor([[1.0, 2.0, 3.0]])})
    assert rewards.upright(env, up="up", variance=0.2).tolist() == approx([math.exp(-0.1 / 0.2)])
    assert rewards.horizontal_sum_of_squares(env, sensor="w").tolist() == approx([5.0])
    assert rewards.sum_of_squares(env, sensor="w").tolist() == approx([14.0])


def test_action_rate_is_the_squared_change() -> None:
    env = bare_env(1, actions=torch.tensor([[1.0, -1.0]]), previous_actions=torch.tensor([[0.0, 1.0]]))
    assert rewards.action_rate_l2(env).tolist() == approx([5.0])


def joints(pos: list[list[float]]) -> SimpleNamespace:
    return SimpleNamespace(
        names=("left_knee", "right_knee"),
        pos=torch.tensor(pos),
        default_pos=torch.tensor([0.5, 0.5]),
    )


def test_pose_deviation_follows_the_commanded_speed() -> None:
    asked = command([[0.0, 0.0], [0.05, 0.0], [1.5, 0.0]], [0.0] * 3, [0.0, 0.0, 1.0])
    env = bare_env(3, joints=joints([[0.6, 0.5]] * 3), commands={"twist": asked})
    tables = ({".*": 0.1}, {"left_.*": 0.2, "right_.*": 0.4}, {".*": 0.5})
    pose = rewards.Pose(env, command="twist", std=tables, from_speed=(0.05, 1.5))
    assert pose().tolist() == approx([math.exp(-0.5), math.exp(-0.125), math.exp(-0.02)])


def test_pose_needs_one_pattern_for_every_joint() -> None:
    env = bare_env(1, joints=joints([[0.0, 0.0]]), commands={"twist": command([[0.0, 0.0]], [0.0], [0.0])})
    with pytest.raises(ValueError, match="right_knee matches 0"):
        rewards.Pose(env, command="twist", std=({"left_.*": 0.1},), from_speed=())


def feet_env(active: float) -> tuple[SimpleNamespace, SimpleNamespace, SimpleNamespace]:
    """One environment: the left foot slides in contact at 0.5 m/s, the right one flies 0.04 m high at 2 m/s."""
    feet = SimpleNamespace(
        in_contact=torch.tensor([[True, False]]),
        first_contact=torch.tensor([[True, False]]),
        force=torch.tensor([[[3.0, 0.0, -4.0], [9.0, 9.0, 9.0]]]),
        air_time=torch.tensor([[0.0, 0.2]]),
    )
    heights = SimpleNamespace(height=torch.tensor([[0.0, 0.04]]))
    sensors = {"left": torch.tensor([[0.3, 0.4, 7.0]]), "right": torch.tensor([[2.0, 0.0, 7.0]])}
    env = bare_env(
        1,
        sensors,
        trackers={"feet": feet, "heights": heights},
        commands={"twist": command([[1.0, 0.0]], [0.0], [active])},
    )
    return env, feet, heights


@pytest.mark.parametrize("active", [1.0, 0.0])
def test_foot_terms_count_only_under_an_active_command(active: float) -> None:
    env, _, _ = feet_env(active)
    velocities = ("left", "right")
    clearance = rewards.FootClearance(env, heights="heights", command="twist", velocities=velocities, target_m=0.1)
    slip = rewards.FootSlip(env, contacts="feet", command="twist", velocities=velocities)
    assert clearance().tolist() == approx([active * (0.1 * 0.5 + 0.06 * 2.0)])
    assert slip().tolist() == approx([active * 0.25])
    assert rewards.soft_landing(env, contacts="feet", command="twist").tolist() == approx([active * 5.0])
    air = rewards.air_time(env, contacts="feet", command="twist", range_s=(0.05, 0.5))
    assert air.tolist() == approx([active])


def test_swing_height_scores_the_peak_of_a_flight_at_landing() -> None:
    env, feet, heights = feet_env(1.0)
    swing = rewards.FootSwingHeight(env, heights="heights", contacts="feet", command="twist", target_m=0.1)
    feet.first_contact = torch.tensor([[False, False]])
    for height in (0.05, 0.08, 0.03):
        heights.height.copy_(torch.tensor([[0.5, height]]))  # the left foot is in contact: its height is no peak
        assert swing().tolist() == [0.0]
    feet.in_contact, feet.first_contact = torch.tensor([[True, True]]), torch.tensor([[False, True]])
    assert swing().tolist() == approx([(0.08 / 0.1 - 1) ** 2])
    assert swing().tolist() == approx([1.0])  # landing again without a flight: the peak was cleared


def test_a_pole_is_held_upright_near_the_middle_and_slowly_or_not_at_all() -> None:
    #                 held  too far  leaning  fast   a turn on, backwards
    cart = torch.tensor([0.8, -1.0, 0.0, 0.0, -0.8])
    pole = torch.tensor([-0.3, 0.0, 0.5, 0.0, 2 * math.pi + 0.3])
    speed = torch.tensor([1.9, 0.0, 0.0, -2.1, -1.9])
    still = torch.zeros(5)
    joints = SimpleNamespace(pos=torch.stack([cart, pole], dim=1), vel=torch.stack([still, speed], dim=1))
    env = bare_env(5, joints=joints)
    held = cartpole.held_upright(env, within_m=0.9, within_rad=0.4, slow_rad_s=2.0)
    assert held.tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
