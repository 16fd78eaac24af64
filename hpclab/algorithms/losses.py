"""The losses of PPO and its adaptive learning rate, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor


def surrogate_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip_param: float) -> Tensor:
    """Clipped surrogate objective, to be minimised. Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7.

    Args:
        log_probs: (B,) of the rollout's actions under the policy that is being trained.
        old_log_probs: (B,) under the policy that drew them.
        advantages: (B,)
        clip_param: how far from 1 the probability ratio may move the loss.

    Returns:
        0-dimensional mean over the samples.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1.0 - clip_param, 1.0 + clip_param)
    return -torch.minimum(advantages * ratio, advantages * clipped).mean()


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, clip_param: float | None) -> Tensor:
    """Squared error of the value function, its change clipped unless `clip_param` is None.

    Source: OpenAI baselines, ppo2/model.py (the clipping is not in the paper), without its factor 1/2.

    Args:
        values: (B,) predictions of the critic that is being trained.
        old_values: (B,) predictions at the rollout.
        returns: (B,) targets.
        clip_param: how far a prediction may move away from the old one [reward units].

    Returns:
        0-dimensional mean over the samples.
    """
    errors = (values - returns).square()
    if clip_param is not None:
        clipped = old_values + (values - old_values).clamp(-clip_param, clip_param)
        errors = torch.maximum(errors, (clipped - returns).square())
    return errors.mean()


def adapt_learning_rate(
    learning_rate: Tensor, kl: Tensor, *, desired_kl: float, minimum: float, maximum: float
) -> Tensor:
    """Return the learning rate that follows from a mean KL divergence, without waiting for the device.

    KL above twice the target divides by 1.5, positive KL below half of it multiplies by 1.5; within bounds.
    Source: RSL-RL 5.4.2 (Rudin et al. 2022, arXiv:2109.11978).

    Args:
        learning_rate: 0-dimensional.
        kl: 0-dimensional [nat]; a KL that is not a number changes nothing.
        desired_kl: target [nat].
        minimum: floor of a lowered rate.
        maximum: cap of a raised rate.
    """
    lowered = (learning_rate / 1.5).clamp(min=minimum)
    raised = (learning_rate * 1.5).clamp(max=maximum)
    kept = torch.where((kl > 0.0) & (kl < desired_kl / 2.0), raised, learning_rate)
    return torch.where(kl > desired_kl * 2.0, lowered, kept)
