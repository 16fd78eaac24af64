"""Gaussian policies: modules that hold what is trainable, and pure functions of the distribution's parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpclab.models.distribution import Parameters, settled

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_MIN_STD = 1e-6


class Normal(NamedTuple):
    """Independent normal distributions of A actions. Shapes: any leading dimensions, which must broadcast."""

    mean: Tensor
    """(..., A)"""
    std: Tensor
    """(..., A), positive."""


class _NormalPolicy(nn.Module):
    """What Gaussian policies have in common: everything that follows from mean and deviation."""

    def start(self, last: nn.Linear) -> None:
        """Leave the last layer as torch initialises it."""

    def sample(self, parameters: Parameters) -> Tensor:
        """Draw (..., A) actions from torch's generator of the device."""
        return sample(Normal(*parameters))

    def mean(self, parameters: Parameters) -> Tensor:
        """Return the (..., A) mean actions."""
        return parameters[0]

    def std(self, parameters: Parameters) -> Tensor:
        """Return the standard deviations [action units]."""
        return parameters[1]

    def log_prob(self, parameters: Parameters, actions: Tensor) -> Tensor:
        """Return (...) log densities of (..., A) actions [nat]."""
        return log_prob(Normal(*parameters), actions)

    def entropy(self, parameters: Parameters) -> Tensor:
        """Return the differential entropy [nat]."""
        return entropy(Normal(*parameters))

    def kl_divergence(self, old: Parameters, new: Parameters) -> Tensor:
        """Return (...) the divergence from `old` to `new` [nat]."""
        return kl_divergence(Normal(*old), Normal(*new))


class Gaussian(_NormalPolicy):
    """A Gaussian whose mean is the network's output and whose deviation is one trainable number per action."""

    def __init__(self, num_actions: int, init_std: float, std_type: str) -> None:
        super().__init__()
        self.num_outputs = num_actions
        self.std_type = std_type
        value = init_std if std_type == "scalar" else math.log(init_std)
        self.std_param = nn.Parameter(torch.full((num_actions,), value))

    def forward(self, output: Tensor) -> Normal:
        """Return the distribution for (..., A) network outputs; the (A,) deviations broadcast."""
        std = self.std_param if self.std_type == "scalar" else self.std_param.exp()
        # A step can carry a scalar deviation below zero, where no density exists.
        return Normal(output, std.clamp(min=_MIN_STD))


class StateDependentGaussian(_NormalPolicy):
    """A Gaussian whose mean and deviation are both outputs of the network: A means, then A deviations."""

    def __init__(self, num_actions: int, init_std: float, std_type: str) -> None:
        super().__init__()
        self.num_outputs = 2 * num_actions
        self.std_type = std_type
        self._start = init_std if std_type == "scalar" else math.log(init_std)

    def start(self, last: nn.Linear) -> None:
        """Let every observation have the initial deviation: no weights and a bias for its half of the outputs."""
        half = self.num_outputs // 2
        nn.init.zeros_(last.weight[half:])
        nn.init.constant_(last.bias[half:], self._start)

    def forward(self, output: Tensor) -> Normal:
        """Return the distribution for (..., 2 A) network outputs."""
        mean, std = output.chunk(2, dim=-1)
        return Normal(mean, (std if self.std_type == "scalar" else std.exp()).clamp(min=_MIN_STD))

    def kl_divergence(self, old: Parameters, new: Parameters) -> Tensor:
        """Return (...) the divergence from `old` to `new` [nat]."""
        return settled(super().kl_divergence(old, new))


def sample(distribution: Normal) -> Tensor:
    """Draw (..., A) actions from torch's generator of the device."""
    mean, std = distribution
    return torch.randn_like(mean).mul_(std).add_(mean)


def log_prob(distribution: Normal, actions: Tensor) -> Tensor:
    """Return (...) log densities of (..., A) actions [nat]."""
    mean, std = distribution
    scaled = (actions - mean) / std
    constant = std.log().sum(-1) + mean.shape[-1] * _LOG_SQRT_2PI
    return scaled.square().sum(-1) * -0.5 - constant


def entropy(distribution: Normal) -> Tensor:
    """Return the differential entropy [nat]: one value for each leading index of `std`, which alone matters."""
    return distribution.std.log().sum(-1) + distribution.std.shape[-1] * (0.5 + _LOG_SQRT_2PI)


def kl_divergence(old: Normal, new: Normal) -> Tensor:
    """Return (...) the Kullback-Leibler divergence from `old` to `new` [nat].

    Source: Kullback and Leibler 1951; closed form for normal distributions, summed over actions.
    """
    ratio = (old.std / new.std).square()
    shift = ((old.mean - new.mean) / new.std).square()
    return 0.5 * (ratio + shift - 1.0 - ratio.log()).sum(-1)
