"""Terms of the cart-pole tasks. The first joint is the cart's slider [m], the second the pole's hinge, 0 upright [rad].

Each reward is 1 for a pole that stands still, upright, in the middle of the rail, and less otherwise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.mirror import Reflection, TaskMirror
from hpclab.envs.spec import ObservationTerm
from hpclab.envs.terms import observations

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def cart_position(env: ManagerEnv) -> Tensor:
    """Position of the cart (N, 1) [m]."""
    return env.joints.pos[:, :1]


def pole_direction(env: ManagerEnv) -> Tensor:
    """Cosine and sine of the pole's angle (N, 2)."""
    angle = env.joints.pos[:, 1:]
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def observed_state() -> dict[str, ObservationTerm]:
    """Return the observation of every cart-pole task: its whole state."""
    return {
        "cart_position": ObservationTerm(cart_position),
        "pole_direction": ObservationTerm(pole_direction),
        "velocities": ObservationTerm(observations.joint_vel),
    }


def upright(env: ManagerEnv) -> Tensor:
    """(1 + cos(angle)) / 2: 1 upright, 0 hanging."""
    return env.joints.pos[:, 1].cos().add_(1.0).mul_(0.5)


def centred(env: ManagerEnv, *, rail_limit: float) -> Tensor:
    """1 - (position / rail_limit)^2: 1 in the middle, 0 at the end of the rail."""
    return 1.0 - (env.joints.pos[:, 0] / rail_limit).square()


def balanced(env: ManagerEnv, *, rail_limit: float, slow_rad_s: float) -> Tensor:
    """Product of `upright`, (1 + `centred`) / 2 and (1 + slow) / 2, slow = exp(-(pole velocity / slow_rad_s)^2)."""
    slow = torch.exp(-(env.joints.vel[:, 1] / slow_rad_s).square())
    return upright(env) * (1.0 + centred(env, rail_limit=rail_limit)) * (1.0 + slow) * 0.25


def held_upright(env: ManagerEnv, *, within_m: float, within_rad: float, slow_rad_s: float) -> Tensor:
    """1 while the cart is near the middle, the pole near upright and slower than `slow_rad_s`; 0 at all other times."""
    position, velocity = env.joints.pos, env.joints.vel
    up = (position[:, 0].abs() < within_m) & (position[:, 1].cos() > math.cos(within_rad))
    return (up & (velocity[:, 1].abs() < slow_rad_s)).float()


def mirrored(env: ManagerEnv) -> TaskMirror:
    """Left is right: everything changes its sign but the cosine of the pole's angle."""
    terms = {
        "cart_position": Reflection.signs(-1.0),
        "pole_direction": Reflection.signs(1.0, -1.0),
        "velocities": Reflection.signs(-1.0, -1.0),
    }
    return TaskMirror(terms, actions=Reflection.signs(-1.0))
