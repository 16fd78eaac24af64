"""The sections of the learning algorithms."""

from __future__ import annotations

from typing import Literal

from hpclab.config.section import Count, Fraction, NonNegative, Positive, Section


class AlgorithmSection(Section):
    """What every algorithm has."""

    precision: Literal["float32", "tf32", "bf16"] = "tf32"
    """How networks multiply matrices. float32: in float32. tf32: on GPUs in TF32, which rounds factors to 10 bits, as
    mjlab 1.6.0 does. bf16: perceptrons in bfloat16, which rounds to 7 bits, the rest as tf32. All else is float32."""


class PPOSection(AlgorithmSection):
    """Proximal policy optimisation. Source of the defaults: mjlab 1.6.0 + RSL-RL 5.4.2, G1."""

    name: Literal["ppo"] = "ppo"
    """The algorithm."""
    num_steps_per_env: Count = 24
    """Rollout steps T per iteration."""
    num_learning_epochs: Count = 5
    """Passes E over the rollout per update."""
    num_mini_batches: Count = 4
    """Mini-batches M per epoch; each holds floor(N * T / M) samples of a rank, the remainder is dropped."""
    learning_rate: Positive = 1e-3
    """Adam step size, at the start when the schedule is adaptive."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """adaptive: KL > 2 * desired_kl divides the learning rate by 1.5, 0 < KL < desired_kl / 2 multiplies it."""
    desired_kl: Positive = 0.01
    """Target KL divergence between the rollout policy and the updated one [nat]."""
    min_learning_rate: Positive = 1e-5
    """Floor of the adaptive schedule."""
    max_learning_rate: Positive = 1e-2
    """Cap of the adaptive schedule."""
    gamma: Fraction = 0.99
    """Discount per control step."""
    lam: Fraction = 0.95
    """GAE bias-variance trade-off."""
    clip_param: Positive = 0.2
    """Range of the probability ratio and of the clipped value loss."""
    use_clipped_value_loss: bool = True
    """Clip the value function's change to clip_param."""
    value_loss_coef: NonNegative = 1.0
    """Weight of the value loss."""
    entropy_coef: NonNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: Positive = 1.0
    """Gradient norm limit, for actor and critic each, after the reduction over ranks."""
