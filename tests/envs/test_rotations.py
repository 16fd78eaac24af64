"""Quaternion arithmetic against rotation matrices."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from hpclab.envs import rotations


@pytest.fixture
def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 50, 4, generator=generator, dtype=torch.float64)
    return tuple(q / q.norm(dim=-1, keepdim=True))


def matrix(q: torch.Tensor) -> torch.Tensor:
    found = np.zeros((len(q), 9))
    for row, values in zip(found, q.numpy(), strict=True):
        mujoco.mju_quat2Mat(row, values)
    return torch.tensor(found).view(-1, 3, 3)


def test_products_turns_and_inverses(pair) -> None:
    a, b = pair
    v = torch.randn(50, 3, dtype=torch.float64)
    torch.testing.assert_close(matrix(rotations.multiply(a, b)), matrix(a) @ matrix(b))
    torch.testing.assert_close(rotations.rotate(a, v), (matrix(a) @ v[:, :, None])[:, :, 0])
    torch.testing.assert_close(rotations.rotate_back(a, rotations.rotate(a, v)), v)
    torch.testing.assert_close(rotations.first_two_columns(a).view(-1, 3, 2), matrix(a)[:, :, :2])
    torch.testing.assert_close(rotations.vertical(a), matrix(a)[:, 2, 2])


def test_angle_between_is_that_of_the_relative_rotation(pair) -> None:
    a, b = pair
    trace = (matrix(a).transpose(1, 2) @ matrix(b)).diagonal(dim1=1, dim2=2).sum(dim=1)
    torch.testing.assert_close(rotations.angle_between(a, b), ((trace - 1) / 2).acos())
    torch.testing.assert_close(rotations.angle_between(a, -a), torch.zeros(50, dtype=torch.float64))


def test_yaw_is_where_the_x_axis_points_from_above(pair) -> None:
    a, _ = pair
    found = rotations.rotate(rotations.yaw_part(a), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(50, 3))
    x_axis = matrix(a)[:, :, 0] * torch.tensor([1.0, 1.0, 0.0])
    torch.testing.assert_close(found, x_axis / x_axis.norm(dim=1, keepdim=True))


def test_roll_pitch_yaw_about_fixed_axes() -> None:
    quarter = rotations.from_roll_pitch_yaw(torch.tensor([math.pi / 2, 0.0, math.pi / 2]))
    found = rotations.rotate(quarter, torch.eye(3))
    torch.testing.assert_close(found, torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
