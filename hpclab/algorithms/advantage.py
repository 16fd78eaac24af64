"""Advantage estimation and normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

ADVANTAGE_EPS = 1e-8


def bootstrap_time_outs(rewards: Tensor, values: Tensor, time_outs: Tensor, *, gamma: float) -> Tensor:
    """Add gamma * V(s_t) where a time limit ended the episode, so that the limit is not learned as an end.

    Source: Pardo et al. 2018, arXiv:1712.00378; with V of the state before the step, as RSL-RL 5.4.2.

    Args:
        rewards: (T, N) reward of step t.
        values: (T, N) V(s_t).
        time_outs: (T, N) bool.
        gamma: discount per control step, in [0, 1].
    """
    return rewards + gamma * (values * time_outs)


def gae(rewards: Tensor, values: Tensor, last_values: Tensor, dones: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimation. Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.

    Shapes: T rollout steps, N environments of this rank.

    Args:
        rewards: (T, N) reward of step t, time-out bootstrap already added.
        values: (T, N) V(s_t).
        last_values: (N,) V(s_T).
        dones: (T, N) bool, the episode ended at step t.
        gamma: discount per control step, in [0, 1].
        lam: bias-variance trade-off, in [0, 1].

    Returns:
        (T, N) advantages, not normalised.
    """
    discounts = gamma * (~dones).to(rewards.dtype)
    next_values = torch.cat([values[1:], last_values.unsqueeze(0)])
    deltas = rewards + discounts * next_values - values
    advantages = [torch.zeros_like(last_values)]
    for delta, decay in zip(deltas.flip(0), (discounts * lam).flip(0), strict=True):
        advantages.append(torch.addcmul(delta, decay, advantages[-1]))
    return torch.stack(advantages[:0:-1])


def normalize(advantages: Tensor) -> Tensor:
    """Return advantages of any shape shifted to mean 0 and scaled to unbiased deviation 1."""
    std, mean = torch.std_mean(advantages)
    return (advantages - mean) / (std + ADVANTAGE_EPS)
