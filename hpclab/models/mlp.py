"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": lambda: nn.ELU(inplace=True),  # in place: backward needs the result alone
    "relu": lambda: nn.ReLU(inplace=True),
    "selu": lambda: nn.SELU(inplace=True),
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "leaky_relu": lambda: nn.LeakyReLU(inplace=True),
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


def mlp(num_inputs: int, hidden_dims: Sequence[int], num_outputs: int, activation: str) -> nn.Sequential:
    """Return linear layers (torch's default initialisation) with `activation` between them.

    Args:
        num_inputs: features of the input.
        hidden_dims: width of each hidden layer.
        num_outputs: features of the output, which has no activation.
        activation: a name in `ACTIVATIONS`.
    """
    layers: list[nn.Module] = []
    for width in hidden_dims:
        layers += [nn.Linear(num_inputs, width), ACTIVATIONS[activation]()]
        num_inputs = width
    return nn.Sequential(*layers, nn.Linear(num_inputs, num_outputs))
