"""Optimisers by name. Each changes parameters in place and never waits for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from hpclab.algorithms.adam import Adam

_ADAMW_DECAY = 0.01
_MUON_DECAY = 0.1
_MUON_MOMENTUM = 0.95
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
_EPSILON = 1e-7


class Optimizer(Protocol):
    """Changes parameters by their gradients."""

    @property
    def learning_rate(self) -> Tensor:
        """0-dimensional; may be changed in place."""
        ...

    def step(self) -> None:
        """Change every parameter by its gradient. Captured in a CUDA graph it can be replayed."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that it remembers, of references to the tensors themselves."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a state into the tensors that are there.

        Raises:
            KeyError, ValueError: the state is of another optimiser or of other parameters.
        """
        ...


class SGD:
    """Stochastic gradient descent without momentum, as `torch.optim.SGD` by default."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: Tensor) -> None:
        self.learning_rate = learning_rate
        self._parameters = list(parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter against its gradient."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        torch._foreach_sub_(self._parameters, torch._foreach_mul(gradients, self.learning_rate))

    def state_dict(self) -> dict[str, Any]:
        """Return the learning rate, which is all there is."""
        group = {"lr": self.learning_rate, "params": list(range(len(self._parameters)))}
        return {"state": {}, "param_groups": [group]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the learning rate.

        Raises:
            ValueError: the state is of other parameters, or of an optimiser that remembers something.
        """
        (group,) = state["param_groups"]
        if len(group["params"]) != len(self._parameters) or state["state"]:
            raise ValueError("the optimiser's state is not one of SGD on these parameters")
        self.learning_rate.fill_(group["lr"])


class Muon:
    """Muon for matrices, AdamW for all other parameters, with one learning rate.

    A matrix moves along its momentum made orthogonal. Source: Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon; the numbers of `torch.optim.Muon`, which waits for the device where the
    learning rate is a tensor.
    """

    def __init__(self, parameters: Iterable[Tensor], learning_rate: Tensor) -> None:
        everything = list(parameters)
        self._matrices = [p for p in everything if p.dim() == 2]
        self._momenta = [torch.zeros_like(p) for p in self._matrices]
        self._rest = Adam([p for p in everything if p.dim() != 2], learning_rate, weight_decay=_ADAMW_DECAY)

    @property
    def learning_rate(self) -> Tensor:
        """0-dimensional; may be changed in place."""
        return self._rest.learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter by its gradient."""
        rate = self.learning_rate
        for parameter, momentum in zip(self._matrices, self._momenta, strict=True):
            gradient = parameter.grad
            assert gradient is not None, "every parameter has a gradient"
            momentum.lerp_(gradient, 1.0 - _MUON_MOMENTUM)
            direction = orthogonal(gradient.lerp(momentum, _MUON_MOMENTUM))
            rows, columns = parameter.shape
            parameter.mul_(1.0 - rate * _MUON_DECAY)
            parameter.sub_(direction * (rate * math.sqrt(max(1.0, rows / columns))))
        self._rest.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the momenta of the matrices and the state of AdamW."""
        return {"momenta": list(self._momenta), "rest": self._rest.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a state into the tensors that are there.

        Raises:
            KeyError, ValueError: the state is of another optimiser or of other parameters.
        """
        shapes = [tuple(momentum.shape) for momentum in state["momenta"]]
        if shapes != [tuple(momentum.shape) for momentum in self._momenta]:
            raise ValueError(f"the optimiser's momenta have the shapes {shapes}")
        for momentum, saved in zip(self._momenta, state["momenta"], strict=True):
            momentum.copy_(saved)
        self._rest.load_state_dict(state["rest"])


def orthogonal(matrix: Tensor) -> Tensor:
    """Return nearly the orthogonal matrix next to `matrix`, by Newton-Schulz iterations in bfloat16.

    Its singular values are between about 0.7 and 1.2. Source: see `Muon`.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=_EPSILON)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if tall else x).to(matrix.dtype)


def make_optimizer(name: str, parameters: Iterable[Tensor], learning_rate: Tensor) -> Optimizer:
    """Return an optimiser.

    Args:
        name: adam, adamw, sgd or muon.
        parameters: what it changes; their gradients must be there when it steps.
        learning_rate: 0-dimensional, on their device.
    """
    if name == "adamw":
        return Adam(parameters, learning_rate, weight_decay=_ADAMW_DECAY)
    kinds: dict[str, Callable[[Iterable[Tensor], Tensor], Optimizer]] = {"adam": Adam, "sgd": SGD, "muon": Muon}
    return kinds[name](parameters, learning_rate)
