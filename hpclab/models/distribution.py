"""What an algorithm needs of a policy's action distribution, whatever its family."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

_ROUNDING = 1e-9

Parameters = tuple[Tensor, Tensor]
"""The two parameters of independent distributions of A actions, by family: (mean, std) or (alpha, beta).

Shapes: (..., A) each. The second may lack leading dimensions and then broadcasts.
"""


class Distribution(Protocol):
    """Makes distributions of the network's outputs, and answers questions about them. Shapes: (...) leading, A actions.

    An `nn.Module` as well; it holds what is trainable beside the network.
    """

    num_outputs: int
    """What the network must give: A or 2 A numbers."""

    def __call__(self, output: Tensor) -> Parameters:
        """Return the distribution for (..., num_outputs) outputs of the network."""
        ...

    def start(self, last: nn.Linear) -> None:
        """Set weights of the network's last layer so that training begins as configured."""
        ...

    def sample(self, parameters: Parameters) -> Tensor:
        """Draw (..., A) actions from torch's generator of the device."""
        ...

    def mean(self, parameters: Parameters) -> Tensor:
        """Return the (..., A) mean actions."""
        ...

    def std(self, parameters: Parameters) -> Tensor:
        """Return the standard deviations, (..., A) or what broadcasts to it [action units]."""
        ...

    def log_prob(self, parameters: Parameters, actions: Tensor) -> Tensor:
        """Return (...) log densities of (..., A) actions [nat]."""
        ...

    def entropy(self, parameters: Parameters) -> Tensor:
        """Return the differential entropy [nat]: one value for each leading index of the parameters it depends on."""
        ...

    def kl_divergence(self, old: Parameters, new: Parameters) -> Tensor:
        """Return (...) the Kullback-Leibler divergence from `old` to `new` [nat]."""
        ...


def rows(parameters: Parameters, count: int) -> Parameters:
    """Return the first `count` of a mini-batch's distributions; a parameter that all share stays."""
    first, second = parameters
    if first.shape[0] == count:
        return parameters
    return first[:count], second[:count] if second.dim() > 1 else second


def settled(kl: Tensor) -> Tensor:
    """Return `kl` with 0 for what is as small as rounding alone makes it [nat].

    An adaptive learning rate goes by the sign of a divergence, also at the first mini-batch after a rollout, where the
    policies are equal but for the order of additions.
    """
    return torch.where(kl.abs() < _ROUNDING, 0.0, kl)
