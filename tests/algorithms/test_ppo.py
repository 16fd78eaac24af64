"""PPO on one rank: determinism, continuation, and what single settings change."""

from __future__ import annotations

import io

import pytest
import torch

from hpclab.algorithms.adam import Adam
from hpclab.algorithms.ppo import PPO
from hpclab.config.schema import SyncSection
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import Step
from hpclab.errors import CheckpointError, ConfigError
from tests.algorithms.scripted import NUM_STEPS, collect, make_config, make_ppo, script, snapshot, spec, train
from tests.variants import VARIANTS

PRESETS = pytest.mark.parametrize("preset", ["mjlab", "global"])
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different


@PRESETS
def test_the_same_seed_gives_the_same_bits(preset):
    results = []
    for _ in range(2):
        ppo = make_ppo(make_config(6, SyncSection(preset=preset)), 6)
        losses = train(ppo, script(6, 2), range(2))
        results.append(snapshot(ppo) | losses[-1])
    assert_same_bits(*results)


@EVERY
@PRESETS
def test_saved_and_loaded_it_continues_bit_for_bit(preset, variant):
    config, data = make_config(6, SyncSection(preset=preset), variant=variant), script(6, 4)
    ppo = make_ppo(config, 6)
    train(ppo, data, range(2))
    file = io.BytesIO()
    torch.save({"ppo": ppo.state_dict(), "memory": ppo.memory_state_dict(), "random": torch.get_rng_state()}, file)
    uninterrupted = train(ppo, data, range(2, 4))[-1] | snapshot(ppo)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = make_ppo(config, 6, seed=99)
    train(other, script(6, 1, seed=5), range(1))
    other.load_state_dict(saved["ppo"])
    other.load_memory_state_dict(saved["memory"])
    torch.set_rng_state(saved["random"])
    assert_same_bits(train(other, data, range(2, 4))[-1] | snapshot(other), uninterrupted)


def test_a_state_dict_does_not_change_when_training_goes_on():
    ppo = make_ppo(make_config(6, SyncSection()), 6)
    state = ppo.state_dict()
    kept = float(state["learning_rate"])
    train(ppo, script(6, 2), range(2))
    assert float(ppo.learning_rate) != kept
    assert float(state["learning_rate"]) == kept


def test_the_state_of_other_models_is_refused():
    state = make_ppo(make_config(6, SyncSection()), 6).state_dict()
    config = make_config(6, SyncSection())
    wider = config.model_copy(update={"actor": config.actor.model_copy(update={"hidden_dims": (20, 12)})})
    with pytest.raises(CheckpointError, match="does not fit the configured models"):
        make_ppo(wider, 6).load_state_dict(state)
    with pytest.raises(CheckpointError):
        make_ppo(config, 6).load_state_dict({})


def test_a_run_changes_over_from_local_to_merged_moments():
    ppo = make_ppo(make_config(6, SyncSection(preset="mjlab")), 6)
    data = script(6, 2)
    train(ppo, data, range(1))
    other = make_ppo(make_config(6, SyncSection(preset="global")), 6)
    other.load_state_dict(ppo.state_dict())
    train(other, data, range(1, 2))
    rows = data["actor"][1:].flatten(0, 1).double()
    assert int(other.actor.normalizer.count) == len(rows)
    torch.testing.assert_close(other.actor.normalizer.exact_mean, rows.mean(0), rtol=1e-5, atol=1e-5)


def test_merged_moments_do_not_move_between_a_rollout_and_its_update():
    ppo = make_ppo(make_config(6, SyncSection(preset="global"), algorithm={"num_learning_epochs": 1}), 6)
    data = script(6, 2)
    train(ppo, data, range(1))
    before = snapshot(ppo)
    collect(ppo, data, 1)
    assert torch.equal(ppo.actor.normalizer.mean, before["actor/normalizer.mean"])
    ppo.update()
    assert int(ppo.actor.normalizer.count) == 2 * NUM_STEPS * 6
    assert not torch.equal(ppo.actor.normalizer.mean, before["actor/normalizer.mean"])


def test_advantages_of_one_mini_batch_normalised_there_equal_those_of_the_rollout():
    algorithm = {"num_mini_batches": 1}
    local, late = (
        make_ppo(make_config(6, SyncSection(advantage=setting), algorithm=algorithm), 6)
        for setting in ("local", "mini_batch")
    )
    for ppo in (local, late):
        ppo.permutation = lambda num_samples, device: torch.arange(num_samples)
        train(ppo, script(6, 2), range(2))
    for name, value in snapshot(local).items():
        torch.testing.assert_close(snapshot(late)[name], value, rtol=1e-3, atol=1e-5)
    raw = late.storage.returns - late.storage.values
    torch.testing.assert_close(late.storage.advantages, raw, rtol=1e-5, atol=1e-5)
    assert abs(float(raw.std()) - 1.0) > 1e-2


def test_a_fixed_learning_rate_stays():
    ppo = make_ppo(make_config(6, SyncSection(), algorithm={"schedule": "fixed", "learning_rate": 5e-4}), 6)
    losses = train(ppo, script(6, 2), range(2))
    assert float(losses[-1]["learning_rate"]) == pytest.approx(5e-4)
    assert float(losses[-1]["kl"]) > 0.0


def test_losses_are_scalars_on_the_device_by_name():
    ppo = make_ppo(make_config(6, SyncSection()), 6)
    losses = train(ppo, script(6, 1), range(1))[0]
    assert set(losses) == {
        "value_loss",
        "surrogate_loss",
        "entropy",
        "kl",
        "actor_grad_norm",
        "critic_grad_norm",
        "learning_rate",
    }
    assert all(value.shape == () and bool(torch.isfinite(value)) for value in losses.values())


def test_actions_are_sampled_around_the_mean_and_inference_gives_the_mean():
    ppo = make_ppo(make_config(512, SyncSection()), 512)
    observations = {"actor": torch.ones(512, 7), "critic": torch.ones(512, 9)}
    mean = ppo.act_inference(observations)
    actions = ppo.act(observations)
    torch.testing.assert_close((actions - mean).std(0), torch.ones(3), atol=0.15, rtol=0)
    torch.testing.assert_close(actions.mean(0), mean[0], atol=0.2, rtol=0)


def test_it_learns_to_act_as_rewarded():
    config = make_config(64, SyncSection(preset="global"), algorithm={"entropy_coef": 0.0})
    ppo = make_ppo(config, 64)
    data = script(64, 20)
    for iteration in range(20):
        ppo.start_rollout()
        for t in range(iteration * NUM_STEPS, (iteration + 1) * NUM_STEPS):
            observations = {"actor": data["actor"][t], "critic": data["critic"][t]}
            actions = ppo.act(observations)
            after = {"actor": data["actor"][t + 1], "critic": data["critic"][t + 1]}
            rewards = -(actions - 0.5).square().sum(-1)
            ends = torch.ones(64, dtype=torch.bool)
            ppo.process_step(Step(after, rewards, ends, ~ends))
        ppo.finish_rollout(after)
        ppo.update()
    error = (ppo.act_inference(observations) - 0.5).square().mean().sqrt()
    assert float(error) < 0.2


@pytest.mark.parametrize("variant", [*VARIANTS, "plain, normalised by mini-batch"])
@PRESETS
def test_no_value_is_waited_for(monkeypatch, preset, variant):
    """On the meta device tensors hold no data: reading a value, or branching on one, is an error."""
    monkeypatch.setattr(Adam, "step", lambda self: None)  # its fused kernel knows no tensors without data
    device = torch.device("meta")
    dims = {"actor": 7, "critic": 9}
    variant, _, by_mini_batch = variant.partition(", ")
    sync = SyncSection(preset=preset, advantage="mini_batch" if by_mini_batch else None)
    config = make_config(6, sync, algorithm={"num_learning_epochs": 1}, variant=variant)
    ppo = PPO(config, spec(6, device))
    observations = {group: torch.zeros(6, dim, device=device) for group, dim in dims.items()}
    ends = torch.zeros(6, dtype=torch.bool, device=device)
    for _ in range(2):
        ppo.start_rollout()
        for _ in range(NUM_STEPS):
            assert ppo.act(observations).is_meta
            ppo.process_step(Step(observations, torch.zeros(6, device=device), ends, ends))
        ppo.finish_rollout(observations)
        assert all(loss.is_meta for loss in ppo.update().values())
    with pytest.raises(RuntimeError):
        float(ppo.learning_rate)


def test_too_few_environments_on_a_rank_are_refused_at_once():
    config = make_config(2, SyncSection(), "global")
    with pytest.raises(ConfigError, match="leaves 0 to a rank of 3"):
        make_ppo(config, 0, Collectives(None, rank=2, world_size=3))
