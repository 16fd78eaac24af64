"""The losses and the adaptive learning rate against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hpclab.algorithms.losses import adapt_learning_rate, surrogate_loss, value_loss


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.1, 2.0, -2.2),  # inside the range: the ratio itself
        (1.5, 2.0, -2.4),  # good action, too far up: clipped
        (0.5, 2.0, -1.0),  # good action made unlikely: not clipped, so it can come back
        (1.5, -2.0, 3.0),  # bad action made likely: not clipped
        (0.5, -2.0, 1.6),  # bad action, too far down: clipped
    ],
)
def test_surrogate_loss(ratio, advantage, expected):
    loss = surrogate_loss(
        torch.tensor([math.log(ratio) - 3.0]), torch.tensor([-3.0]), torch.tensor([advantage]), clip_param=0.2
    )
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_surrogate_loss_stops_the_gradient_where_it_clips():
    log_probs = torch.tensor([math.log(1.5), math.log(1.1)], requires_grad=True)
    surrogate_loss(log_probs, torch.zeros(2), torch.tensor([1.0, 1.0]), clip_param=0.2).backward()
    assert log_probs.grad.tolist() == pytest.approx([0.0, -0.55])


@pytest.mark.parametrize(
    ("value", "old", "target", "clip", "expected"),
    [
        (1.0, 0.9, 2.0, 0.2, 1.0),  # moved by less than the range
        (1.5, 1.0, 2.0, 0.2, 0.64),  # moved too far towards the target: (1.2 - 2)^2
        (0.0, 1.0, 2.0, 0.2, 4.0),  # moved away from the target: unclipped error is the larger
        (1.5, 1.0, 2.0, None, 0.25),
    ],
)
def test_value_loss(value, old, target, clip, expected):
    loss = value_loss(torch.tensor([value]), torch.tensor([old]), torch.tensor([target]), clip_param=clip)
    assert float(loss) == pytest.approx(expected)


def test_losses_are_means_over_samples():
    log_probs = torch.log(torch.tensor([1.1, 0.9]))
    loss = surrogate_loss(log_probs, torch.zeros(2), torch.tensor([1.0, 3.0]), clip_param=0.2)
    assert float(loss) == pytest.approx(-(1.1 + 2.7) / 2)
    errors = value_loss(torch.tensor([1.0, 3.0]), torch.zeros(2), torch.zeros(2), clip_param=None)
    assert float(errors) == 5.0


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (1e-3, 0.021, 1e-3 / 1.5),
        (1e-3, 0.02, 1e-3),
        (1e-3, 0.01, 1e-3),
        (1e-3, 0.005, 1e-3),
        (1e-3, 0.0049, 1.5e-3),
        (1e-3, 0.0, 1e-3),
        (1e-3, -1e-9, 1e-3),
        (1e-3, math.nan, 1e-3),
        (1.2e-5, 1.0, 1e-5),
        (9e-3, 1e-4, 1e-2),
    ],
)
def test_adapt_learning_rate(rate, kl, expected):
    result = adapt_learning_rate(
        torch.tensor(rate, dtype=torch.float64),
        torch.tensor(kl, dtype=torch.float64),
        desired_kl=0.01,
        minimum=1e-5,
        maximum=1e-2,
    )
    assert float(result) == pytest.approx(expected, rel=1e-12)
