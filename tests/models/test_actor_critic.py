"""The networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hpclab.config.schema import ActorSection, CriticSection
from hpclab.models.actor_critic import Actor, Critic
from hpclab.models.mlp import ACTIVATIONS, mlp
from hpclab.models.normalizers import RunningNormalizer


def test_layers_are_linear_with_activations_between():
    network = mlp(4, (8, 6), 2, "elu")
    kinds = (nn.Linear, nn.ELU, nn.Linear, nn.ELU, nn.Linear)
    assert all(isinstance(layer, kind) for layer, kind in zip(network, kinds, strict=True))
    assert [layer.weight.shape for layer in network if isinstance(layer, nn.Linear)] == [(8, 4), (6, 8), (2, 6)]


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_of_the_schema_has_the_right_gradient(activation):
    torch.manual_seed(0)
    network = mlp(3, (5, 4), 2, activation).double()
    inputs = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(network, (inputs,))


def test_the_actor_normalises_and_gives_a_distribution():
    actor = Actor(ActorSection(hidden_dims=(8,), init_std=0.5), 4, 3)
    observations = torch.randn(5, 4)
    actor.normalizer.update(observations)
    mean, std = actor(observations)
    assert mean.shape == (5, 3)
    torch.testing.assert_close(mean, actor.mlp(actor.normalizer(observations)))
    torch.testing.assert_close(std, torch.full((3,), 0.5))


def test_the_critic_gives_one_value_for_each_observation():
    critic = Critic(CriticSection(hidden_dims=(8,)), 4)
    assert critic(torch.randn(2, 5, 4)).shape == (2, 5)


def test_normalisation_can_be_turned_off():
    critic = Critic(CriticSection(hidden_dims=(8,), obs_normalization=False), 4)
    assert not any(isinstance(module, RunningNormalizer) for module in critic.modules())
    observations = torch.randn(5, 4)
    torch.testing.assert_close(critic(observations), critic.head(observations))
