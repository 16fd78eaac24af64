"""Several ranks against one: the same samples must teach the same, and each sync key must do what it says."""

from __future__ import annotations

import pytest
import torch

from hpclab.config.schema import SyncSection
from tests.algorithms.scripted import (
    NUM_MINI_BATCHES,
    collect,
    make_config,
    make_ppo,
    part,
    rank_orders,
    script,
    snapshot,
    train,
)
from tests.distributed.ranks import run_on_ranks
from tests.variants import VARIANTS

pytestmark = pytest.mark.distributed
GLOBAL = SyncSection(preset="global")
ITERATIONS = 3


def share(config, counts, rank):
    """This rank's environments of the script; where they are dealt whole, so that all ranks' k-th are one rank's."""
    first = sum(counts[:rank])
    if not config.recurrent:
        return list(range(first, first + counts[rank]))
    assert set(counts) == {NUM_MINI_BATCHES}
    return list(range(rank, sum(counts), len(counts)))


def spread(collectives, config, counts):
    """Train this rank's share of the script; returns (state, losses) after each iteration."""
    data = part(script(sum(counts), ITERATIONS), share(config, counts, collectives.rank))
    ppo = make_ppo(config, counts[collectives.rank], collectives, seed=1 + collectives.rank)
    ppo.broadcast_parameters()
    orders = [rank_orders(counts, seed)[0][collectives.rank] for seed in range(ITERATIONS)]
    ppo.permutation = lambda num_samples, device: orders.pop(0)
    states = []
    losses = train(ppo, data, range(ITERATIONS), lambda ppo: states.append(snapshot(ppo)))
    return list(zip(states, losses, strict=True)), dict(collectives.counts)


def alone(config, counts):
    """The same on one rank."""
    ppo = make_ppo(config, sum(counts))
    orders = [rank_orders(counts, seed)[1] for seed in range(ITERATIONS)]
    ppo.permutation = lambda num_samples, device: orders.pop(0)
    states = []
    losses = train(ppo, script(sum(counts), ITERATIONS), range(ITERATIONS), lambda ppo: states.append(snapshot(ppo)))
    return list(zip(states, losses, strict=True))


def assert_close(actual, expected, tolerance):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = value.double().abs().max().clamp(min=1e-12)
        error = (actual[name].double() - value.double()).abs().max() / scale
        assert error < tolerance, f"{name}: relative error {error:.2e}"


@pytest.mark.parametrize(
    ("counts", "scope"), [([4, 4], "per_rank"), ([3, 2], "global"), ([4, 3, 3], "global")], ids=str
)
def test_ranks_under_the_global_preset_equal_one_rank_with_all_environments(counts, scope):
    num_envs = counts[0] if scope == "per_rank" else sum(counts)
    results = run_on_ranks(spread, len(counts), make_config(num_envs, GLOBAL, scope), counts)
    expected = alone(make_config(sum(counts), GLOBAL), counts)
    rates = {float(state["learning_rate"]) for state, _ in expected}
    assert len(rates) > 1, "the learning rate must move, or the comparison says nothing about it"
    for by_iteration, _ in results:
        assert_equal_training(by_iteration, expected)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "plain"])
def test_every_variant_on_two_ranks_equals_one_rank_with_all_environments(variant):
    results = run_on_ranks(spread, 2, make_config(4, GLOBAL, variant=variant), [4, 4])
    expected = alone(make_config(8, GLOBAL, variant=variant), [4, 4])
    for by_iteration, _ in results:
        assert_equal_training(by_iteration, expected)


def assert_equal_training(by_iteration, expected):
    for (state, losses), (expected_state, expected_losses) in zip(by_iteration, expected, strict=True):
        models = {name for name in expected_state if "optimizer" not in name}
        assert_close({k: state[k] for k in models}, {k: expected_state[k] for k in models}, 1e-5)
        names = ("value_loss", "entropy", "learning_rate")
        assert_close({k: losses[k] for k in names}, {k: expected_losses[k] for k in names}, 1e-5)


def test_every_rank_holds_the_same_bits_under_the_global_preset():
    first, second = run_on_ranks(spread, 2, make_config(5, GLOBAL, "global"), [3, 2])
    for (state, _), (other, _) in zip(first[0], second[0], strict=True):
        assert all(torch.equal(state[name], other[name]) for name in state)


def test_unweighted_gradients_of_uneven_ranks_would_not_equal_one_rank():
    def unweighted(collectives, config, counts):
        ppo = make_ppo(config, counts[collectives.rank], collectives)
        assert ppo.weight == pytest.approx(counts[collectives.rank] / sum(counts))
        ppo.weight = None
        first = sum(counts[: collectives.rank])
        data = part(script(sum(counts), 1), slice(first, first + counts[collectives.rank]))
        ppo.permutation = lambda num_samples, device: rank_orders(counts, 0)[0][collectives.rank]
        train(ppo, data, range(1))
        return snapshot(ppo)

    result = run_on_ranks(unweighted, 2, make_config(5, GLOBAL, "global"), [3, 2])[0]
    expected = alone(make_config(5, GLOBAL), [3, 2])[0][0]
    name = "critic/mlp.0.weight"
    assert (result[name] - expected[name]).abs().max() > 1e-4


def test_startup_broadcast_overwrites_parameters_and_buffers_of_every_rank():
    def start(collectives):
        ppo = make_ppo(make_config(4, GLOBAL), 4, collectives, seed=collectives.rank)
        ppo.actor.normalizer.update(torch.full((2, 7), float(collectives.rank)))
        before = snapshot(ppo)
        ppo.broadcast_parameters()
        return before, snapshot(ppo)

    (before_0, after_0), (before_1, after_1) = run_on_ranks(start, 2)
    for name, value in before_0.items():
        assert torch.equal(after_0[name], value)
        assert torch.equal(after_1[name], value)
    assert not torch.equal(before_1["actor/mlp.0.weight"], before_0["actor/mlp.0.weight"])
    assert not torch.equal(before_1["actor/normalizer.mean"], before_0["actor/normalizer.mean"])


def both(collectives, sync):
    """One iteration on this rank's half of the script: state, losses, rollout advantages before the update, counts."""
    data = part(script(8, 1), slice(4 * collectives.rank, 4 * collectives.rank + 4))
    ppo = make_ppo(make_config(4, sync), 4, collectives)
    collect(ppo, data, 0)
    advantages, raw = ppo.storage.advantages.clone(), ppo.storage.returns - ppo.storage.values
    losses = ppo.update()
    return snapshot(ppo), losses, advantages, raw, dict(collectives.counts)


def test_normalizer_local_differs_between_ranks_and_global_holds_all_samples():
    local = run_on_ranks(both, 2, SyncSection(normalizer="local"))
    merged = run_on_ranks(both, 2, SyncSection(normalizer="global"))
    key = "actor/normalizer.mean"
    assert (local[0][0][key] - local[1][0][key]).abs().max() > 0.1
    assert torch.equal(merged[0][0][key], merged[1][0][key])
    rows = script(8, 1)["actor"][1:].flatten(0, 1).double()
    for state, *_ in merged:
        assert int(state["actor/normalizer.count"]) == len(rows)
        torch.testing.assert_close(state["actor/normalizer.exact_mean"], rows.mean(0), rtol=1e-12, atol=1e-12)
        m2 = (rows - rows.mean(0)).square().sum(0)
        torch.testing.assert_close(state["actor/normalizer.exact_m2"], m2, rtol=1e-12, atol=0)
        torch.testing.assert_close(state[key][0].double(), rows.mean(0), rtol=1e-6, atol=1e-6)


def test_advantage_is_normalised_over_the_rank_or_over_all_ranks_or_later():
    for setting in ("local", "global", "mini_batch"):
        results = run_on_ranks(both, 2, SyncSection(advantage=setting))
        own, raw = [r[2] for r in results], [r[3] for r in results]
        if setting == "local":
            for advantages in own:
                assert abs(float(advantages.mean())) < 1e-6
                assert float(advantages.std()) == pytest.approx(1.0, abs=1e-6)
        elif setting == "global":
            everything = torch.cat(raw)
            for advantages, mine in zip(own, raw, strict=True):
                expected = (mine - everything.mean()) / (everything.std() + 1e-8)
                torch.testing.assert_close(advantages, expected, rtol=1e-5, atol=1e-5)
                assert abs(float(advantages.mean())) > 1e-3
        else:
            for advantages, mine in zip(own, raw, strict=True):
                torch.testing.assert_close(advantages, mine, rtol=1e-5, atol=1e-5)


def test_learning_rate_is_broadcast_or_follows_everywhere_from_the_kl_that_rides_with_the_gradients():
    broadcast = run_on_ranks(both, 2, SyncSection(learning_rate="broadcast"))
    replicated = run_on_ranks(both, 2, SyncSection(learning_rate="replicated"))
    assert [r[4] for r in broadcast] == [{"all_reduce": 40, "broadcast": 20}] * 2
    assert [r[4] for r in replicated] == [{"all_reduce": 20}] * 2
    rates = {float(r[0]["learning_rate"]) for r in broadcast + replicated}
    assert len(rates) == 1
    assert rates != {1e-3}
    for a, b in zip(broadcast, replicated, strict=True):
        assert all(torch.equal(a[0][name], b[0][name]) for name in a[0])


def test_metrics_are_the_ranks_own_or_the_mean_over_ranks():
    own = [r[1] for r in run_on_ranks(both, 2, SyncSection(metrics="rank0"))]
    reduced = run_on_ranks(both, 2, SyncSection(metrics="global"))
    assert abs(float(own[0]["value_loss"] - own[1]["value_loss"])) > 1e-3
    for _, losses, *_, counts in reduced:
        assert counts["all_reduce"] == 41
        for name in ("value_loss", "surrogate_loss", "entropy", "kl"):
            torch.testing.assert_close(losses[name], (own[0][name] + own[1][name]) / 2)


def test_the_global_preset_needs_one_collective_per_rollout_and_one_per_update():
    counts = run_on_ranks(both, 2, GLOBAL)[0][4]
    assert counts == {"all_gather": 1, "all_reduce": 21}
