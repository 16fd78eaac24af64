"""Keep a pole upright on a cart without seeing velocities: the policy has to remember. Maximum return: 10.

The task of cartpole-balance, but the actor observes positions alone. Its critic group is what the actor of
cartpole-balance sees, so that one trained there can be the teacher of a distillation here.
"""

from __future__ import annotations

from dataclasses import replace

from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import cartpole_balance

MAX_RETURN = cartpole_balance.MAX_RETURN


def task() -> TaskSpec:
    """Return the specification."""
    balance = cartpole_balance.task()
    state = balance.observations["critic"]
    positions = {name: term for name, term in state.items() if name != "velocities"}
    return replace(balance, observations={"actor": positions, "critic": state})
