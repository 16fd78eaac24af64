"""Reduced precision: it rounds the networks' products and nothing else."""

from __future__ import annotations

import pytest
import torch

from hpclab.config.schema import SyncSection
from hpclab.models.mlp import mlp
from hpclab.models.precision import compute_in
from tests.algorithms.scripted import make_config, make_ppo, script, snapshot, train


def test_bfloat16_rounds_a_perceptron_and_leaves_its_ends_float32() -> None:
    torch.manual_seed(0)
    network = mlp(5, (32, 16), 3, "elu")
    inputs = torch.randn(64, 5)
    exact = network(inputs)
    exact.square().sum().backward()
    gradient = network[0].weight.grad.clone()
    network.zero_grad()
    compute_in("bf16", network)
    rounded = network(inputs)
    rounded.square().sum().backward()
    assert rounded.dtype == network[0].weight.dtype == network[0].weight.grad.dtype == torch.float32
    for value, reference in ((rounded, exact), (network[0].weight.grad, gradient)):
        error = (value - reference).norm() / reference.norm()
        assert 1e-4 < error < 2e-2


@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_bfloat16_changes_training_only_slightly(preset: str) -> None:
    results = {}
    for precision in ("float32", "tf32", "bf16"):
        ppo = make_ppo(make_config(12, SyncSection(preset=preset), algorithm={"precision": precision}), 12)
        results[precision] = train(ppo, script(12, 2), range(2))[-1] | snapshot(ppo)
    exact, rounded = results["float32"], results["bf16"]
    assert all(torch.equal(results["tf32"][name], exact[name]) for name in exact), "TF32 is of GPUs alone"
    assert not torch.equal(rounded["actor/mlp.0.weight"], exact["actor/mlp.0.weight"])
    for name in ("value_loss", "entropy", "critic_grad_norm"):
        torch.testing.assert_close(rounded[name], exact[name], rtol=0.03, atol=0.0)
    assert all(value.dtype != torch.bfloat16 for value in rounded.values())


def test_bfloat16_continues_bit_for_bit() -> None:
    config, data = make_config(6, SyncSection(), algorithm={"precision": "bf16"}), script(6, 2)
    ppo = make_ppo(config, 6)
    train(ppo, data, range(1))
    other = make_ppo(config, 6, seed=99)
    other.load_state_dict(ppo.state_dict())
    random = torch.get_rng_state()
    whole = train(ppo, data, range(1, 2))[-1] | snapshot(ppo)
    torch.set_rng_state(random)
    parts = train(other, data, range(1, 2))[-1] | snapshot(other)
    assert [name for name in whole if not torch.equal(whole[name], parts[name])] == []
