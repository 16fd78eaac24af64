"""The sections of the networks: policy and value function."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from hpclab.config.section import Count, Positive, Section, inconsistent


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Activation = Literal["elu", "relu", "selu", "silu", "tanh", "leaky_relu", "sigmoid", "identity"]
Sizes = Annotated[tuple[Count, ...], BeforeValidator(_as_tuple)]
Range = Annotated[tuple[float, float], BeforeValidator(_as_tuple)]


class RecurrentSection(Section):
    """A memory between normaliser and perceptron. Source of the defaults: RSL-RL 5.4.2."""

    type: Literal["lstm", "gru"] = "lstm"
    """Long short-term memory or gated recurrent units."""
    hidden_dim: Count = 256
    """Units of each layer [units]."""
    num_layers: Count = 1
    """Layers, one after another."""


class ImageSection(Section):
    """A convolutional network for the image in an observation; a layer for each entry of `channels`."""

    shape: Annotated[tuple[Count, Count, Count], BeforeValidator(_as_tuple)]
    """Channels, rows and columns of the image: the last numbers of the observation, rows from the top."""
    channels: Sizes = (16, 32, 32)
    """Channels that each layer gives."""
    kernel_sizes: Sizes = (5, 3, 3)
    """Rows and columns that each layer reads [pixels]; the image is padded with zeros by half of it."""
    strides: Sizes = (2, 2, 2)
    """Step of each layer [pixels]."""
    activation: Activation = "elu"
    """Activation after each layer."""
    norm: Literal["none", "group", "batch"] = "none"
    """Normalisation before it: over groups of channels of one image, or of each channel over the mini-batch. Rollouts
    then use running statistics: each rank's own, or their mean under `sync.normalizer: global`."""

    @model_validator(mode="after")
    def _layers(self) -> Self:
        if not len(self.channels) == len(self.kernel_sizes) == len(self.strides):
            raise ValueError("channels, kernel_sizes and strides need an entry for each layer")
        return self


class ModelSection(Section):
    """A multi-layer perceptron. Source of the defaults: mjlab 1.6.0, G1."""

    hidden_dims: Sizes = (512, 256, 128)
    """Width of each hidden layer [units]."""
    activation: Activation = "elu"
    """Activation between layers."""
    obs_normalization: bool = True
    """Normalise observations by running moments."""
    image: ImageSection | None = None
    """The observation ends in an image, not normalised, that a convolutional network reads; none when not given."""
    rnn: RecurrentSection | None = None
    """A recurrent network before the perceptron, which remembers an episode; none when not given."""


class ActorSection(ModelSection):
    """The policy: a multi-layer perceptron and a distribution of actions."""

    distribution: Literal["gaussian", "state_dependent_gaussian", "beta"] = "gaussian"
    """gaussian: one trainable deviation per action. state_dependent_gaussian: the network gives the deviations as well.
    beta: within `action_range`."""
    init_std: Positive = 1.0
    """Standard deviation of a Gaussian at the start [action units]."""
    std_type: Literal["scalar", "log"] = "scalar"
    """Whether the parameter or output is the deviation of a Gaussian itself, or its logarithm."""
    action_range: Range = (-1.0, 1.0)
    """Lowest and highest action of a Beta distribution [action units]."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.action_range[0] >= self.action_range[1]:
            raise inconsistent("actor.action_range", f"{list(self.action_range)} is empty; give the lower limit first")
        return self


class CriticSection(ModelSection):
    """The value function: a multi-layer perceptron with one output."""
