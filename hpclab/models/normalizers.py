"""Running normalisation of observations, and of rewards."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hpclab.distributed.moments import Moments, combine


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
        self.num_features = num_features
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
    def merge(self, delta: Moments) -> None:
        """Take the moments of further samples in, exactly."""
        base = Moments(self.exact_count, self.exact_mean, self.exact_m2)
        self.set_exact(*combine(base, delta))

    @torch.no_grad()
    def start_exact(self) -> None:
        """Let float64 moments continue from `update`'s, where a run changes over to merged moments."""
        if int(self.exact_count) != int(self.count):
            self.exact_count.copy_(self.count)
            self.exact_mean.copy_(self.mean[0])
            self.exact_m2.copy_(self.var[0].double() * self.count)


class LeadingNormalizer(RunningNormalizer):
    """Normalises the first features alone, and passes on those after them as they are."""

    def forward(self, observations: Tensor) -> Tensor:
        """Return (..., D) observations, the first `num_features` normalised."""
        first, rest = observations.tensor_split([self.num_features], dim=-1)
        return torch.cat([super().forward(first), rest], dim=-1)

    def update(self, observations: Tensor) -> None:
        """Take (N, D) observations into the running moments of the first features."""
        super().update(observations[:, : self.num_features])


class ReturnScaler(nn.Module):
    """Divide rewards by the running deviation of their discounted sums, so that their scale does not drift.

    Source: Burda et al. 2018, arXiv:1810.12894, section 2.4, as in RSL-RL 5.4.2: sums go on over the ends of episodes.
    """

    def __init__(self, num_envs: int, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.normalizer = RunningNormalizer(1)
        self.register_buffer("returns", torch.zeros(1, num_envs))

    returns: Tensor
    """(1, N) sum_k gamma^k r_(t-k) of each environment."""

    def forward(self, rewards: Tensor) -> Tensor:
        """Return rewards of any shape, scaled; while no sum has differed from the others, as they are."""
        std = self.normalizer.std.squeeze()
        return torch.where(std > 0.0, rewards / std, rewards)

    @torch.no_grad()
    def accumulate(self, rewards: Tensor) -> Tensor:
        """Add a step's (N,) rewards to the sums and return a copy of them, (N,)."""
        self.returns.mul_(self.gamma).add_(rewards)
        return self.returns[0].clone()

    @torch.no_grad()
    def update(self, rewards: Tensor) -> Tensor:
        """Take a step's (N,) rewards in and return them scaled."""
        self.normalizer.update(self.accumulate(rewards).unsqueeze(-1))
        scaled: Tensor = self(rewards)
        return scaled
