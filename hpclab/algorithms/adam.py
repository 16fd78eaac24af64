"""Adam. Source: Kingma and Ba 2015, arXiv:1412.6980; the kernel is torch's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class Adam:
    """The numbers and the saved state of `torch.optim.Adam(fused=True)`, bit for bit.

    Making one of torch's optimisers imports its compiler, 800 modules that nothing here uses: a second of every rank's
    start, and more where Python is read over a network.
    """

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: Tensor, *, weight_decay: float | None = None
    ) -> None:
        """Take the parameters to change.

        Args:
            parameters: all have a gradient when it steps.
            learning_rate: 0-dimensional; may be changed in place.
            weight_decay: share of a parameter, times the learning rate, that each step takes off it: AdamW, of
                Loshchilov and Hutter 2019, arXiv:1711.05101. None: Adam.
        """
        self._decay = weight_decay
        self.learning_rate = learning_rate
        self._parameters = list(parameters)
        self._means = [torch.zeros_like(p) for p in self._parameters]
        self._squares = [torch.zeros_like(p) for p in self._parameters]
        self._steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self._parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter by its gradient. Captured in a CUDA graph it can be replayed."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        assert len(gradients) == len(self._parameters), "every parameter has a gradient"
        adam(
            self._parameters, gradients, self._means, self._squares, [], self._steps,
            fused=True, amsgrad=False, beta1=_BETAS[0], beta2=_BETAS[1], lr=self.learning_rate,
            weight_decay=self._decay or 0.0, decoupled_weight_decay=self._decay is not None,
            eps=_EPSILON, maximize=False,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return what `torch.optim.Adam.state_dict` does, of references to the tensors themselves."""
        kept = zip(self._steps, self._means, self._squares, strict=True)
        names = ("step", "exp_avg", "exp_avg_sq")
        group: dict[str, Any] = {"lr": self.learning_rate, "betas": _BETAS, "eps": _EPSILON}
        group |= {"weight_decay": self._decay or 0.0, "amsgrad": False, "maximize": False, "fused": True}
        return {
            "state": {index: dict(zip(names, tensors, strict=True)) for index, tensors in enumerate(kept)},
            "param_groups": [group | {"params": list(range(len(self._parameters)))}],
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a state into the tensors that are there; one saved before the first step may be empty.

        Raises:
            KeyError: a part is missing.
            ValueError: the state is of other parameters.
        """
        (group,) = state["param_groups"]
        if len(group["params"]) != len(self._parameters):
            raise ValueError(f"{len(group['params'])} optimised parameters, not {len(self._parameters)}")
        for index, (step, mean, square) in enumerate(zip(self._steps, self._means, self._squares, strict=True)):
            saved = state["state"][index] if state["state"] else {}
            for name, tensor in (("step", step), ("exp_avg", mean), ("exp_avg_sq", square)):
                value = saved[name] if saved else torch.zeros_like(tensor)
                if value.shape != tensor.shape:
                    raise ValueError(f"optimised parameter {index}: {tuple(value.shape)}, not {tuple(tensor.shape)}")
                tensor.copy_(value)
        self.learning_rate.fill_(group["lr"])
