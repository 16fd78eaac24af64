"""The rollout of one iteration, and its split into mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hpclab.models.distribution import Parameters
from hpclab.models.memory import History, State

Permutation = Callable[[int, torch.device], Tensor]
"""Called once per iteration with the number of samples N * T: the order in which they are dealt to mini-batches.

Sample t * N + n is environment n at step t.
"""


def random_permutation(num_samples: int, device: torch.device) -> Tensor:
    """Draw a uniform order from torch's generator of `device`."""
    return torch.randperm(num_samples, device=device)


class MiniBatch(NamedTuple):
    """B samples of a rollout; or all its T steps of B environments: (T, B, ...) in place of (B, ...)."""

    actor_observations: Tensor
    """(B, D), as given to `mini_batches`."""
    critic_observations: Tensor
    """(B, D), as given to `mini_batches`."""
    actions: Tensor
    """(B, A)"""
    log_probs: Tensor
    """(B,) of the actions, under the policy that drew them."""
    distribution: Parameters
    """(B, A) each: the policy that drew the actions."""
    values: Tensor
    """(B,)"""
    returns: Tensor
    """(B,)"""
    advantages: Tensor
    """(B,)"""
    histories: Mapping[str, History]
    """By group "actor" and "critic", of environments: what recurrent networks need beside the observations."""
    extra: Mapping[str, Tensor]
    """(B, ...) of what else was given to be dealt, by name."""


_SAMPLES: Mapping[str, History] = {}
_NOTHING: Mapping[str, Tensor] = {}


class RolloutStorage:
    """Preallocated buffers of T steps of N environments. Shapes: (T, N) or (T, N, features)."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        observation_dims: dict[str, int],
        num_actions: int,
        device: torch.device,
        states: Mapping[str, State] | None = None,
    ) -> None:
        """Make the buffers.

        Args:
            num_steps: T.
            num_envs: N.
            observation_dims: size of each observation group.
            num_actions: A.
            device: where the buffers live.
            states: what recurrent networks remember of the environments, by observation group: its shapes are taken.
        """

        def buffer(*features: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(num_steps, num_envs, *features, dtype=dtype, device=device)

        self.num_steps, self.num_envs = num_steps, num_envs
        self.observations = {group: buffer(dim) for group, dim in observation_dims.items()}
        self.actions = buffer(num_actions)
        self.log_probs = buffer()
        self.distribution: Parameters = (buffer(num_actions), buffer(num_actions))
        self.values = buffer()
        self.rewards = buffer()
        self.dones = buffer(dtype=torch.bool)
        self.time_outs = buffer(dtype=torch.bool)
        self.returns = buffer()
        self.advantages = buffer()
        self.states = {group: tuple(map(torch.zeros_like, state)) for group, state in (states or {}).items()}
        """What was remembered before the first step, by observation group."""
        self.step = 0
        """The step that is next; `num_steps` when the rollout is complete."""
        self._observed = {group: [buffer[t] for t in range(num_steps)] for group, buffer in self.observations.items()}
        self._kept: list[tuple[Tensor, ...]] = []

    def start(self) -> None:
        """Begin a rollout; one that is not complete is forgotten."""
        self.step = 0
        self._kept.clear()

    def observe(self, observations: Mapping[str, Tensor]) -> None:
        """Copy the (N, D) observations, by group, with which the next step begins."""
        for group, rows in self._observed.items():
            rows[self.step].copy_(observations[group])

    def add(self, actions: Tensor, distribution: Parameters, rewards: Tensor, dones: Tensor, time_outs: Tensor) -> None:
        """Take a step; its tensors must stay as they are, because the last step writes all of them to the buffers.

        Args:
            actions: (N, A)
            distribution: (N, A) each, or (A,) where all environments share it.
            rewards, dones, time_outs: (N,)
        """
        self._kept.append((actions, *distribution, rewards, dones, time_outs))
        self.step += 1
        if self.step == self.num_steps:
            buffers = (self.actions, *self.distribution, self.rewards, self.dones, self.time_outs)
            for buffer, values in zip(buffers, zip(*self._kept, strict=True), strict=True):
                buffer.copy_(torch.stack(values).view(self.num_steps, -1, *buffer.shape[2:]))
            self._kept.clear()

    def remember(self, group: str, state: State) -> None:
        """Keep a copy of what the network of `group` remembers before the first step."""
        for kept, tensor in zip(self.states[group], state, strict=True):
            kept.copy_(tensor)

    def mini_batches(
        self, observations: Mapping[str, Tensor], extra: Mapping[str, Tensor], order: Tensor, num_mini_batches: int
    ) -> Iterator[MiniBatch]:
        """Deal the rollout to mini-batches of floor(N * T / M) samples; the remainder is dropped.

        The samples are put in order once; a mini-batch is a slice, which every epoch can use again.

        Args:
            observations: (T, N, D) what the networks "actor" and "critic" read.
            extra: (T, N, ...) what else is dealt with them, by name.
            order: (N * T,) permutation of the samples.
            num_mini_batches: M.
        """
        size = self.num_steps * self.num_envs // num_mini_batches
        order = order[: size * num_mini_batches]

        def deal(values: Tensor) -> tuple[Tensor, ...]:
            return torch.split(values.flatten(0, 1).index_select(0, order), size)

        return self._deal(deal, observations, extra, [_SAMPLES] * num_mini_batches)

    def sequences(
        self, observations: Mapping[str, Tensor], extra: Mapping[str, Tensor], num_mini_batches: int
    ) -> Iterator[MiniBatch]:
        """Deal environments, in their order, to mini-batches of floor(N / M), each with all its steps.

        The remainder is dropped. Arguments as those of `mini_batches`.
        """
        size = self.num_envs // num_mini_batches

        def deal(values: Tensor) -> tuple[Tensor, ...]:
            return torch.split(values[:, : size * num_mini_batches], size, dim=1)

        dones = deal(self.dones)
        states = {group: [deal(tensor) for tensor in state] for group, state in self.states.items()}
        histories = [
            {group: History(tuple(part[index] for part in parts), ended) for group, parts in states.items()}
            for index, ended in enumerate(dones)
        ]
        return self._deal(deal, observations, extra, histories)

    def _deal(
        self,
        deal: Callable[[Tensor], tuple[Tensor, ...]],
        observations: Mapping[str, Tensor],
        extra: Mapping[str, Tensor],
        histories: Sequence[Mapping[str, History]],
    ) -> Iterator[MiniBatch]:
        first, second = self.distribution
        dealt = [deal(values) for values in extra.values()]
        extras: list[Mapping[str, Tensor]] = [
            dict(zip(extra, parts, strict=True)) for parts in zip(*dealt, strict=True)
        ]
        columns = (
            deal(observations["actor"]),
            deal(observations["critic"]),
            deal(self.actions),
            deal(self.log_probs),
            zip(deal(first), deal(second), strict=True),
            deal(self.values),
            deal(self.returns),
            deal(self.advantages),
            histories,
            extras or [_NOTHING] * len(histories),
        )
        return map(MiniBatch, *columns)
