"""The Gaussian policy against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from hpclab.models.gaussian import Gaussian, Normal, entropy, kl_divergence, log_prob


def pair() -> tuple[Normal, Normal, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.randn(6, 3, generator=generator, dtype=torch.float64)

    return Normal(draw(), draw().exp()), Normal(draw(), draw().exp()), draw()


def test_by_hand():
    unit, wide = Normal(torch.zeros(1), torch.ones(1)), Normal(torch.ones(1), torch.full((1,), 2.0))
    assert float(log_prob(unit, torch.zeros(1))) == pytest.approx(-0.5 * math.log(2 * math.pi))
    assert float(log_prob(wide, torch.tensor([3.0]))) == pytest.approx(-0.5 * math.log(2 * math.pi) - math.log(2) - 0.5)
    assert float(entropy(wide)) == pytest.approx(0.5 * math.log(2 * math.pi * math.e) + math.log(2))
    assert float(kl_divergence(unit, wide)) == pytest.approx(math.log(2) + (1 + 1) / 8 - 0.5)
    assert float(kl_divergence(wide, wide)) == 0.0


def test_deviations_of_the_policy_broadcast_over_samples():
    old, _, actions = pair()
    shared = Normal(old.mean, old.std[0])
    expanded = Normal(old.mean, old.std[0].expand_as(old.mean))
    torch.testing.assert_close(log_prob(shared, actions), log_prob(expanded, actions))
    torch.testing.assert_close(entropy(shared).expand(6), entropy(expanded))


@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_both_parametrisations_start_at_init_std_and_learn(std_type):
    policy = Gaussian(3, 0.8, std_type)
    distribution = policy(torch.zeros(5, 3))
    torch.testing.assert_close(distribution.std, torch.full((3,), 0.8))
    entropy(distribution).sum().backward()
    expected = 1 / 0.8 if std_type == "scalar" else 1.0  # d log(std) by std, and by its logarithm
    torch.testing.assert_close(policy.std_param.grad, torch.full((3,), expected))


def test_a_negative_scalar_deviation_still_has_a_density():
    policy = Gaussian(2, 1.0, "scalar")
    with torch.no_grad():
        policy.std_param.fill_(-0.1)
    assert bool(torch.isfinite(log_prob(policy(torch.zeros(2)), torch.zeros(2))))
