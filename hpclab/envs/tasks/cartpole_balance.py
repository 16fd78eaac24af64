"""Keep a pole upright on a cart; it starts near upright. Maximum return: 10.

Each second of a still, upright, centred pole is worth 1. An episode lasts 10 s and ends early when the pole falls
beyond 0.5 rad or the cart nears the end of the rail.
"""

from __future__ import annotations

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
        rewards={
            "upright": RewardTerm(terms.upright, weight=0.8),
            "centred": RewardTerm(terms.centred, {"rail_limit": RAIL_LIMIT}, weight=0.2),
        },
        terminations={
            "pole_fell": TerminationTerm(terminations.joint_outside, {"joint": "hinge", "limit": 0.5}),
            "rail_end": TerminationTerm(terminations.joint_outside, {"joint": "slider", "limit": RAIL_LIMIT - 0.1}),
            "time_out": TerminationTerm(terminations.time_out, time_out=True),
        },
        events={
            "start": EventTerm(
                events.ResetJointsUniform,
                {
                    "position": {"slider": (-0.2, 0.2), "hinge": (-0.1, 0.1)},
                    "velocity": {"slider": (-0.1, 0.1), "hinge": (-0.1, 0.1)},
                },
                mode="reset",
            )
        },
        mirror=terms.mirrored,
        njmax=16,
        nconmax=1,
    )
