"""The flat gradient buffer: what backward fills, what a reduction averages, what clipping leaves."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hpclab.distributed.collectives import Collectives
from hpclab.distributed.gradients import FlatGradients, broadcast_parameters
from tests.distributed.ranks import run_on_ranks


def two_networks() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 2)), nn.Linear(3, 1)]


def backward(networks: list[nn.Module], scale: float = 1.0) -> None:
    inputs = torch.arange(12.0).view(4, 3)
    (scale * sum(network(inputs).square().sum() for network in networks)).backward()


def test_backward_fills_the_buffer_and_zero_keeps_the_views():
    networks, plain = two_networks(), two_networks()
    gradients = FlatGradients(networks, num_extra=2)
    for _ in range(2):
        gradients.zero()
        backward(networks)
    backward(plain)
    expected = [p.grad.flatten() for network in plain for p in network.parameters()]
    assert torch.equal(gradients.buffer, torch.cat([*expected, torch.zeros(2)]))
    gradients.buffer.fill_(7.0)
    assert all(bool((p.grad == 7.0).all()) for network in networks for p in network.parameters())


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_equals_torchs_for_each_network(max_norm):
    networks, plain = two_networks(), two_networks()
    gradients = FlatGradients(networks)
    backward(networks)
    backward(plain)
    norms = gradients.clip(max_norm)
    for norm, network, reference in zip(norms, networks, plain, strict=True):
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference.parameters(), max_norm))
        for p, q in zip(network.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)


def reduce_on_ranks(collectives, weights):
    networks = two_networks()
    gradients = FlatGradients(networks, num_extra=1)
    backward(networks, scale=collectives.rank + 1.0)
    gradients.extra.fill_(float(collectives.rank))
    gradients.reduce(collectives, None if weights is None else weights[collectives.rank])
    return gradients.buffer, dict(collectives.counts)


@pytest.mark.distributed
@pytest.mark.parametrize(("weights", "scale", "extra"), [(None, 1.5, 0.5), ((0.25, 0.75), 1.75, 0.75)])
def test_reduce_averages_over_ranks_in_one_call(weights, scale, extra):
    networks = two_networks()
    gradients = FlatGradients(networks)
    backward(networks, scale)
    for buffer, counts in run_on_ranks(reduce_on_ranks, 2, weights):
        torch.testing.assert_close(buffer[:-1], gradients.buffer)
        assert float(buffer[-1]) == pytest.approx(extra)
        assert counts == {"all_reduce": 1}


def test_one_rank_reduces_nothing_whatever_its_weight():
    networks = two_networks()
    gradients = FlatGradients(networks)
    backward(networks)
    before = gradients.buffer.clone()
    gradients.reduce(Collectives(), weight=0.3)
    assert torch.equal(gradients.buffer, before)


def broadcast_on_ranks(collectives):
    networks = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))]
    with torch.no_grad():
        for tensor in networks[0].state_dict().values():
            tensor.fill_(collectives.rank + 1)
    broadcast_parameters(networks, collectives)
    return networks[0].state_dict(), dict(collectives.counts)


@pytest.mark.distributed
def test_broadcast_overwrites_every_tensor_with_one_call_for_each_data_type():
    for state, counts in run_on_ranks(broadcast_on_ranks, 2):
        assert all(bool((tensor == 1).all()) for tensor in state.values())
        assert counts == {"broadcast": 2}


def test_broadcast_with_one_rank_changes_nothing():
    networks = two_networks()
    before = copy.deepcopy(networks[0].state_dict())
    broadcast_parameters(networks, Collectives())
    assert all(torch.equal(value, before[name]) for name, value in networks[0].state_dict().items())
