"""Every family of policies against torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from hpclab.config.models import ActorSection
from hpclab.models.actor_critic import Actor
from hpclab.models.beta import Beta
from hpclab.models.distribution import Distribution, Parameters, rows
from hpclab.models.gaussian import Gaussian, StateDependentGaussian

A = 3
FAMILIES = {
    "gaussian": Gaussian(A, 0.8, "scalar").double(),
    "state_dependent_gaussian": StateDependentGaussian(A, 0.8, "log").double(),
    "beta": Beta(A, -2.0, 3.0).double(),
}
EVERY = pytest.mark.parametrize("policy", FAMILIES.values(), ids=FAMILIES)


def draw(policy: Distribution, *shape: int, seed: int = 0) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    return policy(torch.randn(*shape, policy.num_outputs, generator=generator, dtype=torch.float64))


def reference(policy: Distribution, parameters: Parameters) -> torch.distributions.Distribution:
    if not isinstance(policy, Beta):
        return torch.distributions.Normal(*parameters)
    scale = torch.distributions.AffineTransform(policy.low, policy.width)
    return torch.distributions.TransformedDistribution(torch.distributions.Beta(*parameters), [scale])


@EVERY
def test_log_prob_entropy_and_kl_equal_torchs(policy: Distribution) -> None:
    old, new = draw(policy, 6, seed=1), draw(policy, 6, seed=2)
    actions = torch.linspace(-1.9, 2.9, 6 * A, dtype=torch.float64).view(6, A)
    expected = reference(policy, old).log_prob(actions).sum(-1)
    torch.testing.assert_close(policy.log_prob(old, actions), expected)
    kind = torch.distributions.Beta if isinstance(policy, Beta) else torch.distributions.Normal
    torch.testing.assert_close(policy.entropy(old).expand(6), kind(*old).entropy().expand(6, A).sum(-1))
    kl = torch.distributions.kl_divergence(kind(*old), kind(*new)).sum(-1)
    torch.testing.assert_close(policy.kl_divergence(old, new), kl)


@EVERY
def test_the_kl_of_policies_that_rounding_alone_makes_different_is_zero(policy: Distribution) -> None:
    old = tuple(parameter.detach().expand(200, A).float() for parameter in draw(policy, 200))
    for direction in (1.0, -1.0):
        first, second = (parameter * (1.0 + direction * 2e-7) for parameter in old)
        if isinstance(policy, Gaussian):
            second = old[1]
        assert policy.kl_divergence(old, (first, second)).unique().tolist() == [0.0]
    assert float(policy.kl_divergence(old, (old[0] * 1.01, old[1])).min()) >= 0.0
    assert float(policy.kl_divergence(old, (old[0] * 1.01, old[1])).max()) > 1e-6


@EVERY
def test_samples_have_the_mean_and_deviation_that_are_promised(policy: Distribution) -> None:
    torch.manual_seed(0)
    first, second = (parameter.expand(1, A) for parameter in draw(policy, 1))
    parameters = (first.expand(50_000, A), second.expand(50_000, A))
    drawn = policy.sample(parameters)
    torch.testing.assert_close(drawn.mean(0), policy.mean(parameters)[0], atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.std(0), policy.std(parameters)[0], atol=0.02, rtol=0)


@EVERY
def test_gradients_are_right(policy: Distribution) -> None:
    actions = torch.linspace(-1.5, 2.5, 2 * A, dtype=torch.float64).view(2, A)

    def log_prob_and_entropy(output: Tensor) -> tuple[Tensor, Tensor]:
        parameters = policy(output)
        return policy.log_prob(parameters, actions), policy.entropy(parameters).sum() + output.sum()

    output = torch.linspace(-1.0, 1.0, 2 * policy.num_outputs, dtype=torch.float64).view(2, -1)
    assert torch.autograd.gradcheck(log_prob_and_entropy, (output.requires_grad_(),))


def test_the_ends_of_the_range_have_a_density() -> None:
    policy = FAMILIES["beta"]
    density = policy.log_prob(draw(policy, 2), torch.tensor([[-2.0] * A, [3.0] * A], dtype=torch.float64))
    assert bool(torch.isfinite(density).all())


@pytest.mark.parametrize("std_type", ["scalar", "log"])
def test_a_state_dependent_deviation_begins_as_configured_for_every_observation(std_type: str) -> None:
    actor = Actor(
        ActorSection(hidden_dims=(8,), distribution="state_dependent_gaussian", init_std=0.3, std_type=std_type), 4, A
    )
    mean, std = actor(torch.randn(5, 4))
    torch.testing.assert_close(std, torch.full((5, A), 0.3))
    assert bool((mean.std(0) > 0.0).all())
    actor.distribution.log_prob((mean, std), torch.ones(5, A)).sum().backward()
    assert isinstance(actor.mlp[-1], nn.Linear)
    assert float(actor.mlp[-1].weight.grad[A:].abs().min()) > 0.0, "and then learns to depend on it"


def test_a_beta_policy_begins_with_the_same_beta_everywhere() -> None:
    actor = Actor(ActorSection(hidden_dims=(8,), distribution="beta", action_range=(-2.0, 2.0)), 4, A)
    alpha, beta = actor(torch.randn(5, 4))
    torch.testing.assert_close(beta, torch.full((5, A), 1.0 + math.log(2.0)))
    assert bool((alpha > 1.0).all())


def test_rows_of_a_mini_batch_keep_what_all_share() -> None:
    first, second = rows(draw(FAMILIES["gaussian"], 6), 2)
    assert (first.shape, second.shape) == ((2, A), (A,))
    assert all(parameter.shape == (2, A) for parameter in rows(draw(FAMILIES["beta"], 6), 2))
