"""The rollout's split into mini-batches."""

from __future__ import annotations

import torch

from hpclab.storage.rollout import RolloutStorage, random_permutation

T, N, M = 5, 3, 4
CPU = torch.device("cpu")


def filled() -> RolloutStorage:
    """Every number tells its place: 10 * step + environment, plus 0.25 for each further feature."""
    storage = RolloutStorage(T, N, {"actor": 2, "critic": 3}, 2, CPU)
    place = 10.0 * torch.arange(T).unsqueeze(1) + torch.arange(N)
    for name in ("log_probs", "values", "rewards", "returns", "advantages"):
        getattr(storage, name).copy_(place)
    for buffer in (storage.actions, *storage.distribution, *storage.observations.values()):
        buffer.copy_(place.unsqueeze(-1) + 0.25 * torch.arange(buffer.shape[-1]))
    return storage


def split(storage: RolloutStorage, order: torch.Tensor) -> list:
    observations = storage.observations
    return list(storage.mini_batches(observations["actor"], observations["critic"], order, M))


def test_mini_batches_take_the_samples_in_order_and_drop_the_remainder():
    order = torch.randperm(T * N, generator=torch.Generator().manual_seed(0))
    batches = split(filled(), order)
    assert len(batches) == M
    for index, batch in enumerate(batches):
        flat = order[3 * index : 3 * index + 3]
        place = (10 * (flat // N) + flat % N).float()
        for values in (batch.log_probs, batch.values, batch.returns, batch.advantages):
            assert torch.equal(values, place)
        for values in (batch.actor_observations, batch.critic_observations, batch.actions, *batch.distribution):
            assert torch.equal(values, place.unsqueeze(-1) + 0.25 * torch.arange(values.shape[-1]))


def test_no_sample_is_in_two_mini_batches():
    torch.manual_seed(0)
    places = torch.cat([batch.values for batch in split(filled(), random_permutation(T * N, CPU))])
    assert len(places) == 12
    assert len(places.unique()) == 12


def test_a_random_permutation_holds_every_sample_once_and_follows_the_seed():
    torch.manual_seed(5)
    first = random_permutation(20, CPU)
    torch.manual_seed(5)
    assert torch.equal(first, random_permutation(20, CPU))
    assert torch.equal(first.sort().values, torch.arange(20))
    assert not torch.equal(first, torch.arange(20))
