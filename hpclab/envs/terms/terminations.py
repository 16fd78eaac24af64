"""Termination terms, each a mask (N,)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from hpclab.envs.constants import constant

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def time_out(env: ManagerEnv) -> Tensor:
    """The episode has reached its time limit."""
    return env.episode_length >= env.max_episode_length


def tilt(env: ManagerEnv, *, up: str, limit_deg: float) -> Tensor:
    """A body leans further than `limit_deg` from upright; `up` senses the world's z axis in its frame."""
    return env.sensor(up).select(1, 2) < constant(math.cos(math.radians(limit_deg)), env.device)


def joint_outside(env: ManagerEnv, *, joint: str, limit: float) -> Tensor:
    """A joint is further than `limit` from zero [rad or m]."""
    return env.joints.pos[:, env.joints.names.index(joint)].abs() > limit
