"""The policy and the value function: normaliser, image encoder and memory where asked for, perceptron, distribution."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from hpclab.config.models import ActorSection, CriticSection, ModelSection
from hpclab.errors import ConfigError
from hpclab.models.beta import Beta
from hpclab.models.cnn import ImageEncoder
from hpclab.models.distribution import Distribution, Parameters
from hpclab.models.gaussian import Gaussian, StateDependentGaussian
from hpclab.models.memory import History, Memory, State
from hpclab.models.mlp import mlp
from hpclab.models.normalizers import LeadingNormalizer, RunningNormalizer


class Network(nn.Module):
    """Maps observations (..., D) to outputs (..., num_outputs)."""

    def __init__(self, config: ModelSection, num_observations: int, num_outputs: int) -> None:
        super().__init__()
        encoder = None if config.image is None else ImageEncoder(config.image)
        self.normalizer = _normalizer(config, num_observations, encoder)
        self.encoder = encoder
        num_features = num_observations
        if encoder is not None:
            num_features += encoder.num_features - encoder.num_pixels
        self.rnn = None if config.rnn is None else Memory(config.rnn, num_features)
        num_features = num_features if config.rnn is None else config.rnn.hidden_dim
        self.mlp = mlp(num_features, config.hidden_dims, num_outputs, config.activation)

    def start_state(self, num_envs: int, device: torch.device) -> State:
        """Return what is remembered of environments at their start: nothing at all without a memory."""
        return () if self.rnn is None else self.rnn.start(num_envs, device)

    def outputs(self, observations: Tensor, state: State = (), *, advance: bool = False) -> Tensor:
        """Return the outputs for one step of raw observations.

        Args:
            observations: (N, D), or (..., D) without a memory.
            state: what is remembered of the N environments.
            advance: whether `state` takes the step too, in place.
        """
        outputs, after = self.step(observations, state)
        if advance:
            for tensor, value in zip(state, after, strict=True):
                tensor.copy_(value)
        return outputs

    def step(self, observations: Tensor, state: State = ()) -> tuple[Tensor, State]:
        """Return the outputs for one step of raw observations, and what is remembered after it; see `outputs`."""
        # `forward` itself: calling a module looks for hooks, in the time of a small product
        features: Tensor = self.normalizer.forward(observations)
        if self.encoder is not None:
            features = self.encoder(features)
        after: State = ()
        if self.rnn is not None:
            features, after = self.rnn(features, state)
        return self.mlp(features), after

    def outputs_again(self, normalized: Tensor, history: History | None) -> tuple[Tensor, State]:
        """Return the outputs for observations that are normalised already, to learn from them, and the memory after.

        Args:
            normalized: (..., D), or (T, B, D) with a memory.
            history: what a memory needs to go through the T steps.
        """
        state: State = ()
        if self.encoder is not None:
            normalized = self.encoder(normalized)
        if self.rnn is not None:
            assert history is not None, "a recurrent network learns from sequences"
            normalized, state = self.rnn.unroll(normalized, history)
        return self.mlp(normalized), state


class Actor(Network):
    """Maps observations (..., D) to a distribution over A actions."""

    def __init__(self, config: ActorSection, num_observations: int, num_actions: int) -> None:
        distribution = _distribution(config, num_actions)
        super().__init__(config, num_observations, distribution.num_outputs)
        self.distribution = distribution
        distribution.start(cast(nn.Linear, self.mlp[-1]))

    def forward(self, observations: Tensor, state: State = (), *, advance: bool = False) -> Parameters:
        """Return the action distribution for raw observations; see `outputs`."""
        return self.distribution(self.outputs(observations, state, advance=advance))

    def head(self, normalized: Tensor, history: History | None = None) -> Parameters:
        """Return the action distribution for observations that are normalised already; see `outputs_again`."""
        return self.distribution(self.outputs_again(normalized, history)[0])

    def again(self, normalized: Tensor, history: History) -> tuple[Parameters, State]:
        """Return what `head` does, and what is remembered after the last step."""
        outputs, state = self.outputs_again(normalized, history)
        return self.distribution(outputs), state


class Critic(Network):
    """Maps observations (..., D) to values (...)."""

    def __init__(self, config: CriticSection, num_observations: int) -> None:
        super().__init__(config, num_observations, 1)

    def forward(self, observations: Tensor, state: State = (), *, advance: bool = False) -> Tensor:
        """Return the values of raw observations; see `outputs`."""
        return self.outputs(observations, state, advance=advance).squeeze(-1)

    def head(self, normalized: Tensor, history: History | None = None) -> Tensor:
        """Return the values of observations that are normalised already; see `outputs_again`."""
        return self.outputs_again(normalized, history)[0].squeeze(-1)


def _normalizer(config: ModelSection, num_observations: int, encoder: ImageEncoder | None) -> nn.Module:
    """Return what normalises all of an observation but an image.

    Raises:
        ConfigError: the observation is smaller than the image that it should end in.
    """
    if encoder is None:
        return RunningNormalizer(num_observations) if config.obs_normalization else nn.Identity()
    before = num_observations - encoder.num_pixels
    if before < 0:
        shape = " x ".join(map(str, encoder.shape))
        raise ConfigError(f"an image of {shape} numbers does not fit into an observation of {num_observations}")
    return LeadingNormalizer(before) if config.obs_normalization and before > 0 else nn.Identity()


def _distribution(config: ActorSection, num_actions: int) -> Distribution:
    if config.distribution == "beta":
        return Beta(num_actions, *config.action_range)
    kind = Gaussian if config.distribution == "gaussian" else StateDependentGaussian
    return kind(num_actions, config.init_std, config.std_type)
