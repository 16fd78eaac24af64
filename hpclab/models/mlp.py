"""Multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Linear):
    """torch's, but finds its parameters at once, where attributes are searched for in the time of a small product."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., num_outputs) for (..., num_inputs)."""
        parameters: dict[str, Any] = self._parameters
        return functional.linear(inputs, parameters["weight"], parameters["bias"])


class ELU(nn.ELU):
    """torch's of alpha 1, in place (backward needs the result alone), without a look at the kind of its argument."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Change `inputs` and return it."""
        return functional.elu_(inputs)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "elu": ELU,
    "relu": lambda: nn.ReLU(inplace=True),
    "selu": lambda: nn.SELU(inplace=True),
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "leaky_relu": lambda: nn.LeakyReLU(inplace=True),
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


class MLP(nn.Sequential):
    """Layers one after the other. Input and output are float32."""

    compute_dtype: torch.dtype | None = None
    """What the layers compute in, by autocast; None: float32."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (..., num_outputs) for (..., num_inputs)."""
        if self.compute_dtype is None:
            return self._run(inputs)
        # Nothing is kept between calls: in a CUDA graph it would belong to the graph that happened to compute it.
        with torch.autocast(inputs.device.type, self.compute_dtype, cache_enabled=False):
            return self._run(inputs).float()

    def _run(self, values: Tensor) -> Tensor:
        for layer in self._modules.values():
            values = layer.forward(values)  # calling the module would look for hooks, in the time of a small product
        return values


def mlp(num_inputs: int, hidden_dims: Sequence[int], num_outputs: int, activation: str) -> MLP:
    """Return linear layers (torch's default initialisation) with `activation` between them.

    Args:
        num_inputs: features of the input.
        hidden_dims: width of each hidden layer.
        num_outputs: features of the output, which has no activation.
        activation: a name in `ACTIVATIONS`.
    """
    layers: list[nn.Module] = []
    for width in hidden_dims:
        layers += [Linear(num_inputs, width), ACTIVATIONS[activation]()]
        num_inputs = width
    return MLP(*layers, Linear(num_inputs, num_outputs))
