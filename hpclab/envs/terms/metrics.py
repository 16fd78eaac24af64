"""Metric terms, each (N,) per control step: what to look at besides rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def velocity_error_xy(env: ManagerEnv, *, command: str, velocity: str) -> Tensor:
    """norm of commanded minus actual horizontal velocity in the body frame [m/s]."""
    wanted: Tensor = env.commands[command].value
    x, y, _ = (wanted - env.sensor(velocity)).unbind(dim=1)
    return torch.hypot(x, y)


def velocity_error_yaw(env: ManagerEnv, *, command: str, velocity: str) -> Tensor:
    """Absolute difference of commanded and actual yaw rate in the body frame [rad/s]."""
    wanted: Tensor = env.commands[command].value
    return (wanted.select(1, 2) - env.sensor(velocity).select(1, 2)).abs()
