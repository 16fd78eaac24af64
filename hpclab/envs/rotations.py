"""Quaternions (..., 4) as w, x, y, z, of unit length; vectors (..., 3)."""

from __future__ import annotations

import torch
from torch import Tensor


def conjugate(q: Tensor) -> Tensor:
    """Return the inverse rotation."""
    return torch.cat([q[..., :1], -q[..., 1:]], dim=-1)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the rotation `b`, then `a`."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - (av * bv).sum(dim=-1, keepdim=True)
    return torch.cat([w, aw * bv + bw * av + torch.linalg.cross(av, bv)], dim=-1)


def rotate(q: Tensor, v: Tensor) -> Tensor:
    """Return the rotated vectors."""
    w, axis = q[..., :1], q[..., 1:]
    twice: Tensor = 2 * torch.linalg.cross(axis.expand_as(v), v)
    across: Tensor = torch.linalg.cross(axis.expand_as(v), twice)
    return v + w * twice + across


def rotate_back(q: Tensor, v: Tensor) -> Tensor:
    """Return the vectors rotated by the inverse: a world vector in the frame of a body of orientation `q`."""
    return rotate(conjugate(q), v)


def angle_between(a: Tensor, b: Tensor) -> Tensor:
    """Return the angle (...) of the rotation from `a` to `b`, in 0..pi [rad]."""
    difference = multiply(conjugate(a), b)
    return 2 * torch.atan2(torch.linalg.vector_norm(difference[..., 1:], dim=-1), difference[..., 0].abs())


def yaw_part(q: Tensor) -> Tensor:
    """Return the rotation about the world's z axis that turns x to where `q` turns it, seen from above."""
    w, x, y, z = q.unbind(dim=-1)
    half = torch.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)) / 2
    zero = torch.zeros_like(half)
    return torch.stack([half.cos(), zero, zero, half.sin()], dim=-1)


def from_roll_pitch_yaw(angles: Tensor) -> Tensor:
    """Return the rotations by roll about x, then pitch about y, then yaw about z, all axes fixed; (..., 3) [rad]."""
    roll, pitch, yaw = (angles / 2).unbind(dim=-1)
    zero = torch.zeros_like(roll)
    about_x = torch.stack([roll.cos(), roll.sin(), zero, zero], dim=-1)
    about_y = torch.stack([pitch.cos(), zero, pitch.sin(), zero], dim=-1)
    about_z = torch.stack([yaw.cos(), zero, zero, yaw.sin()], dim=-1)
    return multiply(about_z, multiply(about_y, about_x))


def first_two_columns(q: Tensor) -> Tensor:
    """Return the first two columns of the rotation matrix, (..., 6) row by row."""
    w, x, y, z = q.unbind(dim=-1)
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x)),
    ]
    return torch.stack(rows, dim=-1)


def vertical(q: Tensor) -> Tensor:
    """Return (...) the z component of the body's z axis in the world: 1 upright, -1 upside down."""
    return 1 - 2 * (q[..., 1].square() + q[..., 2].square())
