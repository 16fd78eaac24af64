"""Action distributions: a module that holds what is trainable, and pure functions of its parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_MIN_STD = 1e-6


class Normal(NamedTuple):
    """Independent normal distributions of A actions. Shapes: any leading dimensions, which must broadcast."""

    mean: Tensor
    """(..., A)"""
    std: Tensor
    """(..., A), positive."""


class Gaussian(nn.Module):
    """A Gaussian whose mean is the network's output and whose deviation is one trainable number per action."""

    def __init__(self, num_actions: int, init_std: float, std_type: str) -> None:
        super().__init__()
        self.std_type = std_type
        value = init_std if std_type == "scalar" else math.log(init_std)
        self.std_param = nn.Parameter(torch.full((num_actions,), value))

    def forward(self, output: Tensor) -> Normal:
        """Return the distribution for (..., A) network outputs; the (A,) deviations broadcast."""
        std = self.std_param if self.std_type == "scalar" else self.std_param.exp()
        # A step can carry a scalar deviation below zero, where no density exists.
        return Normal(output, std.clamp(min=_MIN_STD))


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
