"""Symmetry: what was learned on one side holds for the mirrored one.

Source: Mittal et al. 2024, arXiv:2403.04359, as in RSL-RL 5.4.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hpclab.algorithms.extension import Extension
from hpclab.config.algorithms import SymmetrySection
from hpclab.envs.mirror import Mirror
from hpclab.models.actor_critic import Actor, Critic
from hpclab.models.distribution import Parameters
from hpclab.storage.rollout import MiniBatch, RolloutStorage


class Symmetry(Extension):
    """Mirrored samples are learned from as well, and a loss draws the policy's mirrored actions together.

    Mirror images take the log probability, value, advantage and return of their originals.
    """

    name = "symmetry"
    numbers = ("symmetry_loss",)

    def __init__(self, config: SymmetrySection, mirror: Mirror, actor: Actor, critic: Critic) -> None:
        self.config = config
        self._mirror = mirror
        self._actor = actor
        self._critic = critic

    def columns(self, storage: RolloutStorage) -> dict[str, Tensor]:
        """Return the rollout's mirrored observations, normalised."""
        networks = {"actor": self._actor} | ({"critic": self._critic} if self.config.data_augmentation else {})
        return {
            f"mirrored_{group}": network.normalizer(self._mirror.observations[group](storage.observations[group]))
            for group, network in networks.items()
        }

    def augment(self, batch: MiniBatch) -> MiniBatch:
        """Return the samples followed by their mirror images; the distributions stay those of the originals."""
        if not self.config.data_augmentation:
            return batch
        return batch._replace(
            actor_observations=torch.cat([batch.actor_observations, batch.extra["mirrored_actor"]]),
            critic_observations=torch.cat([batch.critic_observations, batch.extra["mirrored_critic"]]),
            actions=torch.cat([batch.actions, self._mirror.actions(batch.actions)]),
            log_probs=batch.log_probs.repeat(2),
            values=batch.values.repeat(2),
            returns=batch.returns.repeat(2),
            advantages=batch.advantages.repeat(2),
        )

    def loss(self, batch: MiniBatch, distribution: Parameters) -> tuple[Tensor | None, list[Tensor]]:
        """Return how far the mean action of a mirrored observation is from the mirrored mean action, which is held."""
        policy = self._actor.distribution
        means = policy.mean(distribution)
        count = batch.distribution[0].shape[0]
        if self.config.data_augmentation:
            mirrored = means[count:]
        else:
            mirrored = policy.mean(self._actor.head(batch.extra["mirrored_actor"]))
        error = nn.functional.mse_loss(mirrored, self._mirror.actions(means[:count]).detach())
        coefficient = self.config.mirror_loss_coef
        return (coefficient * error if coefficient > 0.0 else None), [error]
