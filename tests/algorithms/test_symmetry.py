"""Symmetry: mirrored samples and the mirror loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hpclab.config.algorithms import SymmetrySection
from hpclab.config.schema import RunConfig, SyncSection
from hpclab.errors import ConfigError
from tests.algorithms.scripted import collect, make_config, make_ppo, mirror, script, spec, train


def mirrored_error(ppo, observations: torch.Tensor) -> float:
    """How far the policy is from acting in the mirror as it does outside."""
    image = mirror().observations["actor"](observations)
    plain, reflected = (ppo.act_inference({"actor": values}) for values in (observations, image))
    return float((reflected - mirror().actions(plain)).square().mean())


def test_mirror_images_follow_the_originals_with_their_numbers() -> None:
    ppo = make_ppo(make_config(6, SyncSection(), algorithm={"symmetry": SymmetrySection()}), 6)
    collect(ppo, script(6, 1), 0)
    ppo.permutation = lambda num_samples, device: torch.arange(num_samples)
    batch = next(iter(ppo._mini_batches()))
    count = len(batch.actions) // 2
    assert torch.equal(batch.actions[count:], mirror().actions(batch.actions[:count]))
    raw = ppo.storage.observations["critic"].flatten(0, 1)[:count]
    expected = ppo.critic.normalizer(mirror().observations["critic"](raw))
    torch.testing.assert_close(batch.critic_observations[count:], expected)
    for values in (batch.log_probs, batch.values, batch.returns, batch.advantages):
        assert torch.equal(values[:count], values[count:])
    assert len(batch.distribution[0]) == count


@pytest.mark.parametrize("augments", [True, False])
def test_the_mirror_loss_draws_the_policy_to_its_image(augments: bool) -> None:
    errors = {}
    for coefficient in (0.0, 20.0):
        settings = SymmetrySection(data_augmentation=augments, mirror_loss_coef=coefficient)
        ppo = make_ppo(make_config(6, SyncSection(), algorithm={"symmetry": settings}), 6)
        losses = train(ppo, script(6, 6), range(6))
        assert float(losses[-1]["symmetry_loss"]) > 0.0
        errors[coefficient] = mirrored_error(ppo, script(64, 1)["actor"][0])
    assert errors[20.0] < 0.5 * errors[0.0]


def test_without_either_it_only_reports() -> None:
    settings = SymmetrySection(data_augmentation=False)
    with_report = make_ppo(make_config(6, SyncSection(), algorithm={"symmetry": settings}), 6)
    plain = make_ppo(make_config(6, SyncSection()), 6)
    for ppo in (with_report, plain):
        torch.manual_seed(5)
        train(ppo, script(6, 2), range(2))
    for a, b in zip(with_report.actor.parameters(), plain.actor.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_tasks_without_a_mirror_and_recurrent_networks_are_refused() -> None:
    settings = {"symmetry": SymmetrySection()}
    from hpclab.algorithms.ppo import PPO

    config = make_config(6, SyncSection(), algorithm=settings)
    with pytest.raises(ConfigError, match="does not say what its mirror image is"):
        PPO(config, replace(spec(6), mirror=lambda: None))
    with pytest.raises(ValueError, match="does not work with recurrent networks"):
        RunConfig.model_validate({"task": "t", "algorithm": settings, "actor": {"rnn": {}}})
