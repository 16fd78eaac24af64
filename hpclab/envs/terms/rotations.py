"""Rotations by unit quaternions, w-x-y-z."""

from __future__ import annotations

import torch
from torch import Tensor


def yaw(quat: Tensor) -> Tensor:
    """Return the heading (N,) [rad] of the body x axis, projected on the ground, for (N, 4) quaternions."""
    w, x, y, z = quat.unbind(dim=1)
    return torch.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def rotate_inverse(quat: Tensor, vector: Tensor) -> Tensor:
    """Return (N, 3) world-frame vectors in the frame of bodies with orientations (N, 4)."""
    w, imaginary = quat[:, :1], quat[:, 1:]
    twice = 2.0 * torch.cross(imaginary, vector, dim=1)
    return vector - w * twice + torch.cross(imaginary, twice, dim=1)
