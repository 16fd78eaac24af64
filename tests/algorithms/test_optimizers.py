"""Optimisers give the numbers of torch's, and continue from what they saved."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hpclab.algorithms.optimizers import make_optimizer, orthogonal
from hpclab.models.mlp import mlp

RATE = 1e-2
NAMES = pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "muon"])


def network() -> nn.Module:
    torch.manual_seed(0)
    return mlp(5, (8,), 3, "elu")


def reference(name: str, model: nn.Module) -> list[torch.optim.Optimizer]:
    parameters = list(model.parameters())
    if name != "muon":
        kind: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
        return [kind(parameters, lr=RATE)]
    matrices, rest = ([p for p in parameters if (p.dim() == 2) == of] for of in (True, False))
    return [torch.optim.Muon(matrices, lr=RATE), torch.optim.AdamW(rest, lr=RATE)]


def gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def parameters(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@NAMES
def test_the_numbers_are_torchs(name: str) -> None:
    ours, theirs = network(), network()
    optimizer, others = make_optimizer(name, ours.parameters(), torch.tensor(RATE)), reference(name, theirs)
    for seed in range(5):
        for model in (ours, theirs):
            gradients(model, seed)
        optimizer.step()
        for other in others:
            other.step()
    for a, b in zip(parameters(ours), parameters(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@NAMES
def test_it_continues_bit_for_bit_and_follows_its_learning_rate(name: str) -> None:
    model, other = network(), network()
    optimizer = make_optimizer(name, model.parameters(), torch.tensor(RATE))
    gradients(model, 0)
    optimizer.step()
    optimizer.learning_rate.fill_(1e-3)
    resumed = make_optimizer(name, other.parameters(), torch.tensor(RATE))
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for model_, optimizer_ in ((model, optimizer), (other, resumed)):
        gradients(model_, 1)
        optimizer_.step()
    assert all(torch.equal(a, b) for a, b in zip(parameters(model), parameters(other), strict=True))
    assert float(resumed.learning_rate) == pytest.approx(1e-3)


@NAMES
def test_the_state_of_another_one_is_refused(name: str) -> None:
    optimizer = make_optimizer(name, network().parameters(), torch.tensor(RATE))
    # SGD's reads as Adam's before its first step.
    alike = ("adam", "adamw", "sgd") if name.startswith("adam") else (name,)
    for saved in {"adam", "sgd", "muon"}.difference(alike):
        model = network()
        gradients(model, 0)
        other = make_optimizer(saved, model.parameters(), torch.tensor(RATE))
        other.step()
        with pytest.raises((KeyError, ValueError)):
            optimizer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_directions_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert 0.5 < float(singular.min()) <= float(singular.max()) < 1.3
