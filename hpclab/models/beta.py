"""A Beta policy: actions within a range, without the probability mass that clipping piles up at its ends."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from hpclab.models.distribution import Parameters, settled

_EDGE = 1e-6
"""How near to 0 and 1 a log density is evaluated: at the ends it may be infinite."""


class BetaParameters(NamedTuple):
    """Independent Beta distributions of A actions, of x in 0..1. Shapes: (..., A)."""

    alpha: Tensor
    """Above 1: the density has one peak, inside."""
    beta: Tensor
    """Above 1."""


class Beta(nn.Module):
    """A Beta distribution of each action between two limits, both parameters outputs of the network.

    alpha and beta are 1 + softplus of their half of the outputs, alpha's first. Source: Chou, Maturana and Scherer 2017
    (PMLR 70), with the details of RSL-RL 5.4.2.
    """

    def __init__(self, num_actions: int, low: float, high: float) -> None:
        super().__init__()
        self.num_outputs = 2 * num_actions
        self.low = low
        self.width = high - low

    def start(self, last: nn.Linear) -> None:
        """Let beta begin the same for every observation: no weights and no bias for its half of the outputs."""
        half = self.num_outputs // 2
        nn.init.zeros_(last.weight[half:])
        nn.init.zeros_(last.bias[half:])

    def forward(self, output: Tensor) -> BetaParameters:
        """Return the distribution for (..., 2 A) network outputs."""
        alpha, beta = (functional.softplus(output) + 1.0).chunk(2, dim=-1)
        return BetaParameters(alpha, beta)

    def sample(self, parameters: Parameters) -> Tensor:
        """Draw (..., A) actions from torch's generator of the device: x is a ratio of two gamma variables."""
        alpha, beta = (torch._standard_gamma(parameter) for parameter in parameters)
        return alpha / (alpha + beta) * self.width + self.low

    def mean(self, parameters: Parameters) -> Tensor:
        """Return the (..., A) mean actions."""
        alpha, beta = parameters
        return alpha / (alpha + beta) * self.width + self.low

    def std(self, parameters: Parameters) -> Tensor:
        """Return the (..., A) standard deviations [action units]."""
        alpha, beta = parameters
        total = alpha + beta
        return (alpha * beta / (total + 1.0)).sqrt() / total * self.width

    def log_prob(self, parameters: Parameters, actions: Tensor) -> Tensor:
        """Return (...) log densities of (..., A) actions [nat]."""
        alpha, beta = parameters
        x = ((actions - self.low) / self.width).clamp(_EDGE, 1.0 - _EDGE)
        density = (alpha - 1.0) * x.log() + (beta - 1.0) * (-x).log1p() - _log_beta(alpha, beta)
        return (density - math.log(self.width)).sum(-1)

    def entropy(self, parameters: Parameters) -> Tensor:
        """Return (...) the differential entropy of x in 0..1 [nat]; that of an action is larger by log(width)."""
        alpha, beta = parameters
        total = alpha + beta
        terms = (alpha - 1.0) * alpha.digamma() + (beta - 1.0) * beta.digamma() - (total - 2.0) * total.digamma()
        return (_log_beta(alpha, beta) - terms).sum(-1)

    def kl_divergence(self, old: Parameters, new: Parameters) -> Tensor:
        """Return (...) the divergence from `old` to `new` [nat], whatever the range. Source: Rauber et al. 2008."""
        # A small difference of large terms.
        (a, b), (c, d) = ((alpha.double(), beta.double()) for alpha, beta in (old, new))
        terms = (a - c) * a.digamma() + (b - d) * b.digamma() + (c - a + d - b) * (a + b).digamma()
        return settled((_log_beta(c, d) - _log_beta(a, b) + terms).sum(-1)).to(old[0].dtype)


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
