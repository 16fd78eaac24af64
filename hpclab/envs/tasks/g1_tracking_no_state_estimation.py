"""Follow a reference motion with the Unitree G1 from what its own sensors tell.

The task of g1-tracking, but the policy sees neither where the robot is, seen from the reference, nor how fast it moves,
which a real robot would have to estimate; the value function sees both.

Source: mjlab 1.6.0, task Mjlab-Tracking-Flat-Unitree-G1-No-State-Estimation.
"""

from __future__ import annotations

from dataclasses import replace

from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import g1_tracking

_ESTIMATED = ("motion_anchor_pos", "base_lin_vel")


def task() -> TaskSpec:
    """Return the specification."""
    tracking = g1_tracking.task()
    measured = {name: term for name, term in tracking.observations["actor"].items() if name not in _ESTIMATED}
    return replace(tracking, observations={**tracking.observations, "actor": measured})
