"""The rollout of one iteration, and its split into mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hpclab.models.distribution import Parameters

Permutation = Callable[[int, torch.device], Tensor]
"""Called once per iteration with the number of samples N * T: the order in which they are dealt to mini-batches.

Sample t * N + n is environment n at step t.
"""


def random_permutation(num_samples: int, device: torch.device) -> Tensor:
    """Draw a uniform order from torch's generator of `device`."""
    return torch.randperm(num_samples, device=device)


class MiniBatch(NamedTuple):
    """B samples of a rollout."""

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


class RolloutStorage:
    """Preallocated buffers of T steps of N environments. Shapes: (T, N) or (T, N, features)."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        observation_dims: dict[str, int],
        num_actions: int,
        device: torch.device,
    ) -> None:
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
        self.step = 0

    def mini_batches(
        self, actor_observations: Tensor, critic_observations: Tensor, order: Tensor, num_mini_batches: int
    ) -> Iterator[MiniBatch]:
        """Deal the rollout to mini-batches of floor(N * T / M) samples; the remainder is dropped.

        The samples are put in order once; a mini-batch is a slice, which every epoch can use again.

        Args:
            actor_observations: (T, N, D) what the actor reads.
            critic_observations: (T, N, D) what the critic reads.
            order: (N * T,) permutation of the samples.
            num_mini_batches: M.
        """
        size = self.num_steps * self.num_envs // num_mini_batches
        order = order[: size * num_mini_batches]

        def deal(values: Tensor) -> tuple[Tensor, ...]:
            return torch.split(values.flatten(0, 1).index_select(0, order), size)

        first, second = self.distribution
        columns = (
            deal(actor_observations),
            deal(critic_observations),
            deal(self.actions),
            deal(self.log_probs),
            zip(deal(first), deal(second), strict=True),
            deal(self.values),
            deal(self.returns),
            deal(self.advantages),
        )
        return map(MiniBatch, *columns)
