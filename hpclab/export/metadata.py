"""What a file says of its policy besides the network: all that a robot's runtime needs to feed it and to obey it.

ONNX holds texts by key. Lists of names and numbers are separated by commas and have the keys that mjlab 1.6.0 gives
them (`joint_names`, `default_joint_pos`, `joint_stiffness`, `joint_damping`, `action_scale`, `observation_names`,
`command_names`); what has more structure is JSON.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any

import hpclab
from hpclab.config.models import ActorSection
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.spec import ObservationTerm


def task_metadata(env: ManagerEnv, group: str) -> dict[str, str]:
    """Return what the task says of its observations, joints and actions.

    Args:
        env: the task.
        group: the observation group that the policy sees.
    """
    terms = env.task.observations[group]
    described = [
        describe_term(name, terms[name], part.stop - part.start)
        for name, part in env.observations.slices[group].items()
    ]
    joints = env.joints
    metadata = {
        "task": env.name,
        "hpclab_version": hpclab.__version__,
        "control_period_s": _listed([env.step_dt]),
        "observations": json.dumps(described),
        "observation_names": _listed(terms),
        "command_names": _listed(env.commands),
        "joint_names": _listed(joints.names),
        "default_joint_pos": _listed(joints.default_pos.tolist()),
    }
    if (meaning := env.action_meaning()) is not None:
        metadata |= {
            "action_type": meaning.quantity,
            "action_names": _listed(meaning.names),
            "action_scale": _listed(meaning.scale),
            "action_offset": _listed(meaning.offset),
        }
        given = (
            ("action_clip", meaning.clip),
            ("joint_stiffness", meaning.stiffness),
            ("joint_damping", meaning.damping),
        )
        metadata |= {key: _listed(values) for key, values in given if values is not None}
    return metadata


def describe_term(name: str, term: ObservationTerm, size: int) -> dict[str, Any]:
    """Return what a runtime must do for one observation term: get the values, cut, scale and keep the latest of them.

    Noise and delay are left out: they imitate what a robot's own sensors do.

    Args:
        name: of the term in its group.
        term: with its settings.
        size: numbers that it adds to an observation, over all its history.
    """
    meaning = (inspect.getdoc(term.func) or "").partition("\n")[0]
    return {
        "name": name,
        "size": size,
        "clip": term.clip,
        "scale": term.scale,
        "history": term.history,
        "meaning": meaning,
        "params": {key: value for key, value in term.params.items() if isinstance(value, str | int | float)},
    }


def network_metadata(config: ActorSection) -> dict[str, str]:
    """Return what the network says: where an image is in the observation."""
    return {} if config.image is None else {"image_shape": _listed(config.image.shape)}


def _listed(values: Iterable[str | float]) -> str:
    # Seven digits are what a float32 holds.
    return ",".join(value if isinstance(value, str) else f"{value:.7g}" for value in values)
