"""Running normalisation of observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningNormalizer(nn.Module):
    """Shift and scale observations by the moments of all that were seen: (x - mean) / (std + eps).

    Two ways to learn, for one module never both: `update` after each step (float32, this rank's samples), or
    `set_exact` with moments merged over ranks (kept in float64, so that many merges lose nothing).
    Source of `update`: Chan, Golub and LeVeque 1979 in the incremental form of RSL-RL 5.4.2.
    """

    count: Tensor
    mean: Tensor
    var: Tensor
    std: Tensor
    exact_count: Tensor
    exact_mean: Tensor
    exact_m2: Tensor

    def __init__(self, num_features: int, eps: float = 1e-2) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(1, num_features))
        self.register_buffer("var", torch.ones(1, num_features))
        self.register_buffer("std", torch.ones(1, num_features))
        self.register_buffer("exact_count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("exact_mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("exact_m2", torch.zeros(num_features, dtype=torch.float64))

    def forward(self, observations: Tensor) -> Tensor:
        """Return (..., D) observations, normalised."""
        return (observations - self.mean) / (self.std + self.eps)

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Take (N, D) observations into the running moments."""
        num_rows = observations.shape[0]
        self.count += num_rows
        rate = num_rows / self.count
        var, mean = torch.var_mean(observations, dim=0, unbiased=False, keepdim=True)
        delta = mean - self.mean
        self.mean += rate * delta
        self.var += rate * (var - self.var + delta * (mean - self.mean))
        torch.sqrt(self.var, out=self.std)

    @torch.no_grad()
    def set_exact(self, count: Tensor, mean: Tensor, m2: Tensor) -> None:
        """Replace the moments: count (), mean (D,) and sum of squared deviations (D,), float64, not empty."""
        self.exact_count.copy_(count)
        self.exact_mean.copy_(mean)
        self.exact_m2.copy_(m2)
        self.count.copy_(count)
        self.mean.copy_(mean)
        self.var.copy_(m2 / count)
        torch.sqrt(self.var, out=self.std)

    @torch.no_grad()
    def start_exact(self) -> None:
        """Let float64 moments continue from `update`'s, where a run changes over to merged moments."""
        if int(self.exact_count) != int(self.count):
            self.exact_count.copy_(self.count)
            self.exact_mean.copy_(self.mean[0])
            self.exact_m2.copy_(self.var[0].double() * self.count)
