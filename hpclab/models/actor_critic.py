"""The policy and the value function: normaliser, perceptron, and for the policy a distribution."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from hpclab.config.models import ActorSection, CriticSection
from hpclab.models.beta import Beta
from hpclab.models.distribution import Distribution, Parameters
from hpclab.models.gaussian import Gaussian, StateDependentGaussian
from hpclab.models.mlp import mlp
from hpclab.models.normalizers import RunningNormalizer


class Actor(nn.Module):
    """Maps observations (..., D) to a distribution over A actions."""

    def __init__(self, config: ActorSection, num_observations: int, num_actions: int) -> None:
        super().__init__()
        self.normalizer = _normalizer(config.obs_normalization, num_observations)
        distribution = _distribution(config, num_actions)
        self.mlp = mlp(num_observations, config.hidden_dims, distribution.num_outputs, config.activation)
        self.distribution = distribution
        distribution.start(cast(nn.Linear, self.mlp[-1]))

    def forward(self, observations: Tensor) -> Parameters:
        """Return the action distribution for raw observations."""
        return self.head(self.normalizer(observations))

    def head(self, normalized: Tensor) -> Parameters:
        """Return the action distribution for observations that are normalised already."""
        return self.distribution(self.mlp(normalized))


class Critic(nn.Module):
    """Maps observations (..., D) to values (...)."""

    def __init__(self, config: CriticSection, num_observations: int) -> None:
        super().__init__()
        self.normalizer = _normalizer(config.obs_normalization, num_observations)
        self.mlp = mlp(num_observations, config.hidden_dims, 1, config.activation)

    def forward(self, observations: Tensor) -> Tensor:
        """Return the values of raw observations."""
        return self.head(self.normalizer(observations))

    def head(self, normalized: Tensor) -> Tensor:
        """Return the values of observations that are normalised already."""
        values: Tensor = self.mlp(normalized)
        return values.squeeze(-1)


def _distribution(config: ActorSection, num_actions: int) -> Distribution:
    if config.distribution == "beta":
        return Beta(num_actions, *config.action_range)
    kind = Gaussian if config.distribution == "gaussian" else StateDependentGaussian
    return kind(num_actions, config.init_std, config.std_type)


def _normalizer(enabled: bool, num_observations: int) -> nn.Module:
    return RunningNormalizer(num_observations) if enabled else nn.Identity()
