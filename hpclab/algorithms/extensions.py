"""Build what a run adds to PPO."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hpclab.algorithms.extension import Extension
from hpclab.algorithms.rnd import RandomNetworkDistillation
from hpclab.algorithms.symmetry import Symmetry
from hpclab.config.algorithms import PPOSection
from hpclab.config.schema import SyncSection
from hpclab.envs.mirror import Mirror
from hpclab.errors import ConfigError
from hpclab.models.actor_critic import Actor, Critic


def make_extensions(
    config: PPOSection,
    sync: SyncSection,
    actor: Actor,
    critic: Critic,
    *,
    observation_dims: dict[str, int],
    num_envs: int,
    step_dt: float,
    mirror: Callable[[], Mirror | None] | None,
    device: torch.device,
) -> list[Extension]:
    """Return the extensions that `config` asks for, in the order in which they take part.

    Args:
        config: the algorithm's settings.
        sync: what ranks share, with every key set.
        actor: the policy.
        critic: the value function.
        observation_dims: size of each observation group.
        num_envs: N, environments of this rank.
        step_dt: length of a control step [s].
        mirror: returns what observations and actions look like in the mirror, where the task says so.
        device: where everything lives.

    Raises:
        ConfigError: the task lacks what an extension needs.
    """
    extensions: list[Extension] = []
    if config.rnd is not None:
        group = config.rnd.group
        if group not in observation_dims:
            raise ConfigError(f"algorithm.rnd.group: the task has {', '.join(observation_dims)}, but not {group!r}")
        rnd = RandomNetworkDistillation(
            config.rnd,
            sync,
            num_observations=observation_dims[group],
            num_envs=num_envs,
            step_dt=step_dt,
            gamma=config.gamma,
            device=device,
        )
        extensions.append(rnd)
    if config.symmetry is not None:
        mirrored = None if mirror is None else mirror()
        if mirrored is None:
            raise ConfigError("algorithm.symmetry: the task does not say what its mirror image is")
        extensions.append(Symmetry(config.symmetry, mirrored, actor, critic))
    return extensions
