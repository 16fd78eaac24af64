"""Advantages against numbers worked by hand and against the definition."""

from __future__ import annotations

import pytest
import torch

from hpclab.algorithms.advantage import bootstrap_time_outs, gae, normalize


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def test_gae_by_hand():
    dones = torch.tensor([[False], [False], [False]])
    result = gae(
        column(1.0, 2.0, 3.0),
        column(0.5, 1.0, 1.5),
        torch.tensor([2.0], dtype=torch.float64),
        dones,
        gamma=0.9,
        lam=0.5,
    )
    # deltas: 1 + 0.9 - 0.5, 2 + 1.35 - 1, 3 + 1.8 - 1.5; then A_t = delta_t + 0.45 A_{t+1}
    torch.testing.assert_close(result, column(1.4 + 0.45 * (2.35 + 0.45 * 3.3), 2.35 + 0.45 * 3.3, 3.3))


def test_nothing_flows_back_over_the_end_of_an_episode():
    dones = torch.tensor([[False], [True], [False]])
    result = gae(
        column(1.0, 2.0, 3.0),
        column(0.5, 1.0, 1.5),
        torch.tensor([2.0], dtype=torch.float64),
        dones,
        gamma=0.9,
        lam=0.5,
    )
    torch.testing.assert_close(result, column(1.4 + 0.45 * 1.0, 1.0, 3.3))


def test_lambda_one_gives_discounted_returns_and_lambda_zero_one_step_errors():
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    last = torch.randn(4, generator=generator, dtype=torch.float64)
    dones = torch.rand(6, 4, generator=generator) < 0.3
    returns, value = [], last
    for t in reversed(range(6)):
        value = rewards[t] + 0.97 * value * ~dones[t]
        returns.insert(0, value)
    torch.testing.assert_close(
        gae(rewards, values, last, dones, gamma=0.97, lam=1.0), torch.stack(returns) - values, rtol=1e-12, atol=1e-12
    )
    following = torch.cat([values[1:], last.unsqueeze(0)]) * ~dones
    torch.testing.assert_close(
        gae(rewards, values, last, dones, gamma=0.97, lam=0.0), rewards + 0.97 * following - values
    )


def test_only_time_outs_are_bootstrapped():
    result = bootstrap_time_outs(
        torch.tensor([1.0, 1.0]), torch.tensor([10.0, 10.0]), torch.tensor([True, False]), gamma=0.5
    )
    assert result.tolist() == [6.0, 1.0]


def test_normalize_uses_the_unbiased_deviation():
    result = normalize(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert result.flatten().tolist() == pytest.approx([-1.161895, -0.387298, 0.387298, 1.161895])
