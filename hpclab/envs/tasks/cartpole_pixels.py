"""Keep a pole upright on a cart, seen in pictures alone. Maximum return: 10.

The task of cartpole-balance, but the policy sees the latest three pictures of 32 x 48 pixels; the value function sees
the state. An image network takes the actor's observation as (3, 32, 48): the oldest picture first, rows from the top.
"""

from __future__ import annotations

from dataclasses import replace

from hpclab.envs.spec import ObservationTerm, TaskSpec, Term
from hpclab.envs.tasks import cartpole_balance
from hpclab.envs.terms import pictures

MAX_RETURN = cartpole_balance.MAX_RETURN
IMAGE_SHAPE = (3, 32, 48)
"""Pictures, rows and columns of the actor's observation."""


def task() -> TaskSpec:
    """Return the specification."""
    length, height, width = IMAGE_SHAPE
    camera = {"name": "camera", "width": width, "height": height, "length": length}
    seen = {"pictures": ObservationTerm(pictures.picture, {"tracker": "camera"})}
    balance = cartpole_balance.task()
    return replace(
        balance,
        observations={"actor": seen, "critic": balance.observations["critic"]},
        trackers={"camera": Term(pictures.CartPolePicture, camera)},
    )
