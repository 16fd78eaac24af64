"""Convolutional networks on the image at the end of an observation, and batch normalisation over ranks."""

from __future__ import annotations

import pytest
import torch

from hpclab.config.models import ActorSection, ImageSection
from hpclab.config.schema import SyncSection
from hpclab.errors import ConfigError
from hpclab.models.actor_critic import Actor
from hpclab.models.cnn import ImageEncoder
from hpclab.models.normalizers import LeadingNormalizer
from tests.algorithms.scripted import make_config, make_ppo, part, script, snapshot, train
from tests.distributed.ranks import run_on_ranks

SECTION = ImageSection(shape=(2, 8, 12), channels=(4, 6), kernel_sizes=(5, 3), strides=(2, 2))
PIXELS = 2 * 8 * 12


@pytest.mark.parametrize("norm", ["none", "group", "batch"])
def test_the_image_is_replaced_by_as_many_features_as_announced(norm: str) -> None:
    encoder = ImageEncoder(SECTION.model_copy(update={"norm": norm}))
    assert encoder.num_features == 6 * 2 * 3
    observations = torch.randn(7, 5, 3 + PIXELS)
    encoded = encoder(observations)
    assert encoded.shape == (7, 5, 3 + encoder.num_features)
    assert torch.equal(encoded[..., :3], observations[..., :3])
    image = observations[2, 4, 3:].view(1, 2, 8, 12)
    if norm != "batch":
        torch.testing.assert_close(encoded[2, 4, 3:], encoder.layers(image).flatten())


def test_a_shifted_image_gives_shifted_features() -> None:
    encoder = ImageEncoder(ImageSection(shape=(1, 6, 6), channels=(3,), kernel_sizes=(3,), strides=(1,)))
    image = torch.zeros(1, 6, 6)
    image[0, 2, 2] = 1.0
    moved = image.roll(1, dims=-1)
    first, second = (encoder(values.view(1, -1)).view(3, 6, 6) for values in (image, moved))
    torch.testing.assert_close(first[..., 1:-2], second[..., 2:-1])


def test_only_what_stands_before_the_image_is_normalised() -> None:
    actor = Actor(ActorSection(hidden_dims=(8,), image=SECTION), 3 + PIXELS, 2)
    observations = 5.0 + torch.randn(64, 3 + PIXELS)
    actor.normalizer.update(observations)
    normalized = actor.normalizer(observations)
    assert torch.equal(normalized[:, 3:], observations[:, 3:])
    torch.testing.assert_close(normalized[:, :3].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    assert isinstance(actor.normalizer, LeadingNormalizer)
    assert not isinstance(Actor(ActorSection(hidden_dims=(8,), image=SECTION), PIXELS, 2).normalizer, LeadingNormalizer)
    with pytest.raises(ConfigError, match="an image of 2 x 8 x 12 numbers does not fit into an observation of 5"):
        Actor(ActorSection(image=SECTION), 5, 2)


IMAGE = ImageSection(shape=(1, 2, 3), channels=(4,), kernel_sizes=(3,), strides=(1,), norm="batch")


def with_batch_norm(preset: str):
    config = make_config(4, SyncSection(preset=preset))
    return config.model_copy(update={"actor": config.actor.model_copy(update={"image": IMAGE})})


def test_statistics_stand_still_in_a_rollout_and_follow_the_update() -> None:
    ppo = make_ppo(with_batch_norm("mjlab"), 4)
    before = snapshot(ppo)
    data = script(4, 1)
    ppo.start_rollout()
    observations = {group: data[group][0] for group in ("actor", "critic")}
    first, again = ppo.act_inference(observations), ppo.act_inference({k: v[:2] for k, v in observations.items()})
    torch.testing.assert_close(first[:2], again)  # no statistics of the batch
    assert torch.equal(
        snapshot(ppo)["actor/encoder.layers.1.running_mean"], before["actor/encoder.layers.1.running_mean"]
    )
    train(ppo, data, range(1))
    after = snapshot(ppo)
    assert not torch.equal(after["actor/encoder.layers.1.running_mean"], before["actor/encoder.layers.1.running_mean"])
    assert int(after["actor/encoder.layers.1.num_batches_tracked"]) == 20


@pytest.mark.distributed
@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_statistics_are_each_ranks_own_or_the_mean_of_all(preset: str) -> None:
    def both(collectives):
        ppo = make_ppo(with_batch_norm(preset), 4, collectives)
        ppo.broadcast_parameters()
        train(ppo, part(script(8, 1), slice(4 * collectives.rank, 4 * collectives.rank + 4)), range(1))
        return snapshot(ppo)["actor/encoder.layers.1.running_var"], ppo.shared_state_dict()["actor"].keys()

    (first, shared), (second, _) = run_on_ranks(both, 2)
    assert torch.equal(first, second) == (preset == "global")
    assert ("encoder.layers.1.running_var" in shared) == (preset == "global")
