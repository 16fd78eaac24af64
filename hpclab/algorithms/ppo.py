"""Proximal policy optimisation. Source: Schulman et al. 2017, arXiv:1707.06347, as in RSL-RL 5.4.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hpclab.algorithms import advantage, losses
from hpclab.algorithms.batch_statistics import BatchStatistics, is_rank_local
from hpclab.algorithms.extensions import make_extensions
from hpclab.algorithms.observation_moments import ObservationMoments
from hpclab.algorithms.optimizers import make_optimizer
from hpclab.config.algorithms import PPOSection
from hpclab.config.schema import RunConfig
from hpclab.distributed import gradients, moments
from hpclab.distributed.collectives import Collectives
from hpclab.distributed.moments import Moments
from hpclab.distributed.sync import sample_weights
from hpclab.envs.vec_env import EnvironmentSpec, Observations, Step
from hpclab.errors import CheckpointError
from hpclab.models.actor_critic import Actor, Critic
from hpclab.models.distribution import Parameters, rows
from hpclab.models.memory import State, restore
from hpclab.models.precision import compute_in
from hpclab.storage.rollout import MiniBatch, Permutation, RolloutStorage, random_permutation

_LOSSES = ("value_loss", "surrogate_loss", "entropy", "kl", "actor_grad_norm", "critic_grad_norm")


class PPO:
    """Actor, critic, optimiser and rollout of one rank.

    Nothing here waits for the device. What ranks share follows `config.sync`: see `describe_sync`.
    """

    def __init__(
        self,
        config: RunConfig,
        spec: EnvironmentSpec,
        collectives: Collectives | None = None,
        *,
        permutation: Permutation = random_permutation,
    ) -> None:
        """Build the models (torch's global generator draws the parameters) and the buffers.

        Args:
            config: the run.
            spec: of the environments of this rank, which have the observation groups "actor" and "critic".
            collectives: the ranks; one rank alone when not given.
            permutation: draws the order of samples, once per iteration.

        Raises:
            ConfigError: a rank has too few environments for its mini-batches, or the task lacks what a setting needs.
        """
        assert isinstance(config.algorithm, PPOSection)
        self.config = config.algorithm
        self.sync = config.sync.resolved()
        self.device = device = spec.device
        self.collectives = collectives or Collectives()
        self.permutation = permutation
        self.actor = Actor(config.actor, spec.observation_dims["actor"], spec.num_actions).to(device)
        self.critic = Critic(config.critic, spec.observation_dims["critic"]).to(device)
        compute_in(self.config.precision, self.actor, self.critic)
        self.states: dict[str, State] = {
            "actor": self.actor.start_state(spec.num_envs, device),
            "critic": self.critic.start_state(spec.num_envs, device),
        }
        """What recurrent networks remember of the environments, by observation group; changed in place."""
        self._remembered = [tensor for state in self.states.values() for tensor in state]
        self.storage = RolloutStorage(
            self.config.num_steps_per_env, spec.num_envs, spec.observation_dims, spec.num_actions, device, self.states
        )
        self.extensions = make_extensions(self.config, self.sync, self.actor, self.critic, spec)
        self.loss_names = [*_LOSSES, *(name for extension in self.extensions for name in extension.numbers)]
        trained = [network for extension in self.extensions for network in extension.trained]
        self.gradients = gradients.FlatGradients([self.actor, self.critic], num_extra=1, unclipped=trained)
        weights = sample_weights(config, self.collectives.world_size)
        self.weight = None if weights is None else weights[self.collectives.rank]
        self.optimizer = make_optimizer(
            self.config.optimizer,
            [*self.actor.parameters(), *self.critic.parameters()],
            torch.tensor(self.config.learning_rate, device=device),
        )
        local = self.sync.normalizer == "local"
        # A memory has to see every step; otherwise merged moments, which stand still, let values wait for the end.
        self._values_wait = not local and not self.states["critic"]
        self._moments = ObservationMoments(
            [("actor", self.actor.normalizer), ("critic", self.critic.normalizer)], local=local
        )
        self._batch_statistics = BatchStatistics([self.actor, self.critic], self.collectives, self.weight, local=local)
        self._acted: tuple[Tensor, Parameters]  # what the last `act` returned, and what it was drawn from
        self._deltas: list[Moments] = []  # of the rollout that waits for its update, over all ranks

    @property
    def learning_rate(self) -> Tensor:
        """The optimiser's learning rate, a 0-dimensional tensor on the device, changed in place."""
        return self.optimizer.learning_rate

    @property
    def mean_std(self) -> Tensor:
        """Standard deviation of the rollout's policy, averaged over its actions; 0-dimensional [action units]."""
        return self.actor.distribution.std(self.storage.distribution).mean()

    def broadcast_parameters(self) -> None:
        """Give every rank rank 0's parameters and buffers. Collective."""
        added = [network for extension in self.extensions for network in extension.broadcast]
        gradients.broadcast_parameters([self.actor, self.critic, *added], self.collectives)

    def start_rollout(self) -> None:
        """Begin a new rollout; one that was not finished is forgotten."""
        self.storage.start()
        for group, state in self.states.items():
            self.storage.remember(group, state)

    @torch.inference_mode()
    def act(self, observations: Observations, actions: Tensor | None = None) -> Tensor:
        """Return (N, A) actions for a rollout step: sampled, or `actions` where a recording is replayed."""
        storage = self.storage
        distribution = self.actor(observations["actor"], self.states["actor"], advance=True)
        if actions is None:
            actions = self.actor.distribution.sample(distribution)
        storage.observe(observations)
        if not self._values_wait:
            storage.values[storage.step] = self.critic(observations["critic"], self.states["critic"], advance=True)
        self._acted = actions, distribution
        return actions

    @torch.inference_mode()
    def act_inference(self, observations: Observations) -> Tensor:
        """Return the (N, A) mean actions of the policy; a memory stays as it is."""
        return self.actor.distribution.mean(self.actor(observations["actor"], self.states["actor"]))

    @torch.inference_mode()
    def process_step(self, step: Step) -> None:
        """Take the answer to the last `act`; local normalisers see the new observations."""
        self._moments.step(step.observations)
        self.storage.add(*self._acted, step.rewards, step.dones, step.time_outs)
        for tensor in self._remembered:
            tensor.masked_fill_(step.dones.unsqueeze(-1), 0.0)

    @torch.inference_mode()
    def finish_rollout(self, observations: Observations) -> None:
        """Compute returns and advantages; `observations` follow the last step.

        One packed collective where moments are global: the advantages' and the observations'. The latter reach the
        normalisers after the update, so that it sees the rollout's observations as the rollout's policy did.
        """
        storage, config = self.storage, self.config
        assert storage.step == storage.num_steps, "a rollout must be complete before it is finished"
        # What need not be known during the rollout is computed for all its steps at once, which is faster.
        storage.log_probs.copy_(self.actor.distribution.log_prob(storage.distribution, storage.actions))
        if self._values_wait:
            storage.values.copy_(self.critic(storage.observations["critic"]))
        shared = self._moments.measure(storage.observations, observations)
        for extension in self.extensions:
            shared += extension.finish_rollout(storage, observations)
        storage.rewards.copy_(
            advantage.bootstrap_time_outs(storage.rewards, storage.values, storage.time_outs, gamma=config.gamma)
        )
        advantages = advantage.gae(
            storage.rewards,
            storage.values,
            self.critic(observations["critic"], self.states["critic"]),
            storage.dones,
            gamma=config.gamma,
            lam=config.lam,
        )
        torch.add(advantages, storage.values, out=storage.returns)
        if self.sync.advantage == "global":
            shared = [*shared, moments.measure(advantages.unsqueeze(-1))]
        if shared:
            shared = moments.gather(shared, self.collectives)
        if self.sync.advantage == "global":
            count, mean, m2 = shared.pop()
            std = (m2 / (count - 1.0)).sqrt()
            advantages = ((advantages - mean) / (std + advantage.ADVANTAGE_EPS)).to(advantages.dtype)
        elif self.sync.advantage == "local":
            advantages = advantage.normalize(advantages)
        storage.advantages.copy_(advantages)
        self._deltas = shared

    def update(self) -> dict[str, Tensor]:
        """Learn from the rollout: E epochs of M mini-batches.

        Returns:
            0-dimensional tensors: learning_rate, and value_loss, surrogate_loss, entropy, kl, actor_grad_norm,
            critic_grad_norm as means over the updates (over the ranks too under `sync.metrics: global`).
        """
        config = self.config
        with torch.no_grad():
            mini_batches = list(self._mini_batches())
        totals = torch.zeros(len(self.loss_names), device=self.device)
        with self._batch_statistics.learning():
            for _ in range(config.num_learning_epochs):
                for batch in mini_batches:
                    totals += self._step(batch)
        totals /= config.num_learning_epochs * config.num_mini_batches
        if self.sync.metrics == "global" and self.collectives.world_size > 1:
            weight = 1.0 / self.collectives.world_size if self.weight is None else self.weight
            self.collectives.all_reduce_sum(totals.mul_(weight))
        deltas = iter(self._deltas)
        self._moments.merge(deltas)
        for extension in self.extensions:
            extension.merge(deltas)
        return dict(zip(self.loss_names, totals.unbind(), strict=True)) | {"learning_rate": self.learning_rate.clone()}

    def _mini_batches(self) -> Iterator[MiniBatch]:
        """Deal the rollout. The normalisers do not change during the update, so one pass serves every epoch."""
        storage = self.storage
        observations = {
            "actor": self.actor.normalizer(storage.observations["actor"]),
            "critic": self.critic.normalizer(storage.observations["critic"]),
        }
        count = self.config.num_mini_batches
        extra = {name: column for part in self.extensions for name, column in part.columns(storage).items()}
        if self._remembered:
            batches = storage.sequences(observations, extra, count)
        else:
            order = self.permutation(storage.num_steps * storage.num_envs, self.device)
            batches = storage.mini_batches(observations, extra, order, count)
        for batch in batches:
            if self.sync.advantage == "mini_batch":
                batch = batch._replace(advantages=advantage.normalize(batch.advantages))
            for extension in self.extensions:
                batch = extension.augment(batch)
            yield batch

    def _step(self, batch: MiniBatch) -> Tensor:
        """Take one gradient step and return the numbers named by `_LOSSES`."""
        config, policy = self.config, self.actor.distribution
        distribution = self.actor.head(batch.actor_observations, batch.histories.get("actor"))
        values = self.critic.head(batch.critic_observations, batch.histories.get("critic"))
        surrogate = losses.surrogate_loss(
            policy.log_prob(distribution, batch.actions),
            batch.log_probs,
            batch.advantages,
            clip_param=config.clip_param,
        )
        value_clip = config.clip_param if config.use_clipped_value_loss else None
        value = losses.value_loss(values, batch.values, batch.returns, clip_param=value_clip)
        originals = rows(distribution, batch.distribution[0].shape[0])
        entropy = policy.entropy(originals).mean()
        loss = surrogate + config.value_loss_coef * value - config.entropy_coef * entropy
        numbers: list[Tensor] = []
        for extension in self.extensions:
            added, found = extension.loss(batch, distribution)
            loss = loss if added is None else loss + added
            numbers += found
        self.gradients.zero()
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            kl = policy.kl_divergence(batch.distribution, originals).mean()
            norms = self._reduce_and_clip(kl)
            self.optimizer.step()
            for extension in self.extensions:
                extension.step()
            return torch.stack([value, surrogate, entropy, kl, *norms, *numbers])

    def _reduce_and_clip(self, kl: Tensor) -> list[Tensor]:
        """Average gradients over the ranks, adapt the learning rate to their mean KL, clip; return the norms."""
        config, rate = self.config, self.learning_rate
        adaptive = config.schedule == "adaptive"
        rides = self.sync.learning_rate == "replicated"
        if adaptive and rides:
            self.gradients.extra.copy_(kl)
        mean_kl = self._mean(kl) if adaptive and not rides else self.gradients.extra[0]
        self.gradients.reduce(self.collectives, self.weight)
        if adaptive:
            rate.copy_(
                losses.adapt_learning_rate(
                    rate,
                    mean_kl,
                    desired_kl=config.desired_kl,
                    minimum=config.min_learning_rate,
                    maximum=config.max_learning_rate,
                )
            )
            if not rides:
                self.collectives.broadcast(rate)
        return self.gradients.clip(self.config.max_grad_norm)

    def _mean(self, value: Tensor) -> Tensor:
        """Average a scalar over the ranks by their samples: one all_reduce."""
        world_size = self.collectives.world_size
        if world_size == 1:
            return value
        if self.weight is None:
            return self.collectives.all_reduce_sum(value.clone()) / world_size
        return self.collectives.all_reduce_sum(value * self.weight)

    def state_dict(self) -> dict[str, Any]:
        """Models with buffers, optimiser and learning rate: complete between two iterations."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "learning_rate": self.learning_rate.clone(),
        } | {extension.name: extension.state_dict() for extension in self.extensions}

    def shared_state_dict(self) -> dict[str, Any]:
        """The part of `state_dict` that all ranks hold alike: without normalisers where each rank has its own."""
        state = self.state_dict()
        if self.sync.normalizer == "local":
            for model in ("actor", "critic"):
                state[model] = {key: tensor for key, tensor in state[model].items() if not is_rank_local(key)}
        return state | {extension.name: extension.shared_state_dict() for extension in self.extensions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`, bit for bit.

        Raises:
            CheckpointError: the state is of models of other shapes, or not of PPO.
        """
        try:
            self.actor.load_state_dict(state["actor"])
            self.critic.load_state_dict(state["critic"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.learning_rate.copy_(state["learning_rate"])
            for extension in self.extensions:
                extension.load_state_dict(state[extension.name])
        except KeyError as missing:
            raise CheckpointError(
                f"the saved training state holds no {missing}, which the config asks for"
            ) from missing
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"the saved training state does not fit the configured models: {error}") from error
        self._moments.restart()

    def memory_state_dict(self) -> dict[str, Tensor]:
        """What is remembered of the environments, which are dimension 1, by name: live tensors."""
        states = self.states.items()
        found = {f"{group}/{index}": tensor for group, state in states for index, tensor in enumerate(state)}
        for extension in self.extensions:
            found |= extension.memory_state_dict()
        return found

    def load_memory_state_dict(self, state: dict[str, Tensor]) -> None:
        """Remember what a `memory_state_dict` of as many environments holds.

        Raises:
            CheckpointError: it is of other networks or another number of environments.
        """
        restore(self.memory_state_dict(), state)


ALGORITHM = PPO
