"""Swing a hanging pole up by moving the cart, then keep it upright. Return below 10, the worth of 10 s upright.

Each second of a still, upright, centred pole is worth 1. An episode lasts 10 s; nothing ends it early.
"""

from __future__ import annotations

import math

from hpclab.envs.robots.cartpole import RAIL_LIMIT, cartpole
from hpclab.envs.spec import EventTerm, RewardTerm, TaskSpec, Term, TerminationTerm
from hpclab.envs.terms import actions, events, terminations
from hpclab.envs.terms import cartpole as terms

MAX_RETURN = 10.0


def task() -> TaskSpec:
    """Return the specification."""
    state = terms.observed_state()
    return TaskSpec(
        model=cartpole,
        decimation=2,
        episode_length_s=10.0,
        observations={"actor": state, "critic": state},
        action=Term(actions.Effort),
        rewards={"balanced": RewardTerm(terms.balanced, {"rail_limit": RAIL_LIMIT, "slow_rad_s": 5.0}, weight=1.0)},
        terminations={"time_out": TerminationTerm(terminations.time_out, time_out=True)},
        events={
            "start": EventTerm(
                events.ResetJointsUniform,
                {
                    "position": {"slider": (-0.1, 0.1), "hinge": (math.pi - 0.1, math.pi + 0.1)},
                    "velocity": {"slider": (-0.1, 0.1), "hinge": (-0.1, 0.1)},
                },
                mode="reset",
            )
        },
        mirror=terms.mirrored,
        njmax=16,
        nconmax=1,
    )
