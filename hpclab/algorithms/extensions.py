"""Build what a run adds to PPO."""

from __future__ import annotations

from hpclab.algorithms.extension import Extension
from hpclab.algorithms.rnd import RandomNetworkDistillation
from hpclab.algorithms.symmetry import Symmetry
from hpclab.config.algorithms import PPOSection
from hpclab.config.schema import SyncSection
from hpclab.envs.vec_env import EnvironmentSpec
from hpclab.errors import ConfigError
from hpclab.models.actor_critic import Actor, Critic


def make_extensions(
    config: PPOSection,
    sync: SyncSection,
    actor: Actor,
    critic: Critic,
    spec: EnvironmentSpec,
) -> list[Extension]:
    """Return the extensions that `config` asks for, in the order in which they take part.

    Args:
        config: the algorithm's settings.
        sync: what ranks share, with every key set.
        actor: the policy.
        critic: the value function.
        spec: of the environments of this rank.

    Raises:
        ConfigError: the task lacks what an extension needs.
    """
    extensions: list[Extension] = []
    if config.rnd is not None:
        group, dims = config.rnd.group, spec.observation_dims
        if group not in dims:
            raise ConfigError(f"algorithm.rnd.group: the task has {', '.join(dims)}, but not {group!r}")
        rnd = RandomNetworkDistillation(
            config.rnd,
            sync,
            num_observations=dims[group],
            num_envs=spec.num_envs,
            step_dt=spec.step_dt,
            gamma=config.gamma,
            device=spec.device,
        )
        extensions.append(rnd)
    if config.symmetry is not None:
        mirrored = spec.mirror()
        if mirrored is None:
            raise ConfigError("algorithm.symmetry: the task does not say what its mirror image is")
        extensions.append(Symmetry(config.symmetry, mirrored, actor, critic))
    return extensions
