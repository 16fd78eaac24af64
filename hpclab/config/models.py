"""The sections of the networks: policy and value function."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from hpclab.config.section import Count, Positive, Section

Activation = Literal["elu", "relu", "selu", "silu", "tanh", "leaky_relu", "sigmoid", "identity"]


class ModelSection(Section):
    """A multi-layer perceptron. Source of the defaults: mjlab 1.6.0, G1."""

    hidden_dims: tuple[Count, ...] = (512, 256, 128)
    """Width of each hidden layer [units]."""
    activation: Activation = "elu"
    """Activation between layers."""
    obs_normalization: bool = True
    """Normalise observations by running moments."""

    @model_validator(mode="before")
    @classmethod
    def _sequence(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("hidden_dims"), list):
            return values | {"hidden_dims": tuple(values["hidden_dims"])}
        return values


class ActorSection(ModelSection):
    """The policy: a multi-layer perceptron and a Gaussian with one trainable deviation per action."""

    init_std: Positive = 1.0
    """Standard deviation at the start [action units]."""
    std_type: Literal["scalar", "log"] = "scalar"
    """Whether the parameter is the deviation itself or its logarithm."""


class CriticSection(ModelSection):
    """The value function: a multi-layer perceptron with one output."""
