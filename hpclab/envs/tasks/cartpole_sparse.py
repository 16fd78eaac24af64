"""Swing up a hanging pole with a weak motor; nothing but a pole held upright is rewarded. Return below 10.

A second is worth 1 while the pole is within 0.4 rad of upright and slower than 2 rad/s, and the cart within 0.9 m of
the middle. With 3 N the pole has to be pushed several times in its rhythm, and an episode of 10 s ends early when the
cart nears the end of the rail: random actions never come by the reward.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from hpclab.envs.robots.cartpole import cartpole
from hpclab.envs.spec import RewardTerm, TaskSpec
from hpclab.envs.tasks import cartpole_balance, cartpole_swingup
from hpclab.envs.terms import cartpole as terms

MAX_RETURN = cartpole_swingup.MAX_RETURN


def task() -> TaskSpec:
    """Return the specification."""
    swingup = cartpole_swingup.task()
    within = {"within_m": 0.9, "within_rad": 0.4, "slow_rad_s": 2.0}
    return replace(
        swingup,
        model=functools.partial(cartpole, force_n=3.0),
        rewards={"held_upright": RewardTerm(terms.held_upright, within, weight=1.0)},
        terminations={**swingup.terminations, "rail_end": cartpole_balance.task().terminations["rail_end"]},
    )
