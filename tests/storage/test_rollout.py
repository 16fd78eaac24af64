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
    return list(storage.mini_batches(storage.observations, {"place": storage.values + 0.5}, order, M))


def test_mini_batches_take_the_samples_in_order_and_drop_the_remainder():
    order = torch.randperm(T * N, generator=torch.Generator().manual_seed(0))
    batches = split(filled(), order)
    assert len(batches) == M
    for index, batch in enumerate(batches):
        flat = order[3 * index : 3 * index + 3]
        place = (10 * (flat // N) + flat % N).float()
        for values in (batch.extra["place"] - 0.5, batch.log_probs, batch.values, batch.returns, batch.advantages):
            assert torch.equal(values, place)
        for values in (batch.actor_observations, batch.critic_observations, batch.actions, *batch.distribution):
            assert torch.equal(values, place.unsqueeze(-1) + 0.25 * torch.arange(values.shape[-1]))


def test_no_sample_is_in_two_mini_batches():
    torch.manual_seed(0)
    places = torch.cat([batch.values for batch in split(filled(), random_permutation(T * N, CPU))])
    assert len(places) == 12
    assert len(places.unique()) == 12


def test_sequences_hold_every_step_of_whole_environments_and_where_their_episodes_end():
    storage = RolloutStorage(T, 5, {"actor": 2, "critic": 3}, 2, CPU, {"actor": (torch.zeros(1, 5, 4),), "critic": ()})
    storage.values.copy_(10.0 * torch.arange(T).unsqueeze(1) + torch.arange(5))
    storage.dones[2, 3] = True
    live = torch.arange(5.0).view(1, 5, 1).expand(1, 5, 4).clone()
    storage.remember("actor", (live,))
    live.zero_()
    first, second = storage.sequences(storage.observations, {"place": storage.values + 0.5}, 2)
    for batch, envs in ((first, slice(0, 2)), (second, slice(2, 4))):
        assert torch.equal(batch.values, storage.values[:, envs])
        assert torch.equal(batch.extra["place"], storage.values[:, envs] + 0.5)
        assert batch.actor_observations.shape == (T, 2, 2)
        assert batch.distribution[0].shape == (T, 2, 2)
        history = batch.histories["actor"]
        assert history.state[0][0, :, 0].tolist() == list(range(5))[envs]
        assert torch.equal(history.dones, storage.dones[:, envs])
        assert batch.histories["critic"].state == ()


def test_a_random_permutation_holds_every_sample_once_and_follows_the_seed():
    torch.manual_seed(5)
    first = random_permutation(20, CPU)
    torch.manual_seed(5)
    assert torch.equal(first, random_permutation(20, CPU))
    assert torch.equal(first.sort().values, torch.arange(20))
    assert not torch.equal(first, torch.arange(20))


def test_a_rollout_holds_what_each_step_gave_it_and_one_that_was_left_is_forgotten():
    storage = RolloutStorage(2, N, {"actor": 2}, 2, CPU)
    generator = torch.Generator().manual_seed(0)
    std = torch.tensor([0.5, 2.0])  # shared by all environments
    observations = torch.zeros(N, 2)  # changes in place
    expected: dict[str, list[torch.Tensor]] = {name: [] for name in ("observations", "actions", "mean", "rewards")}
    for num_steps in (1, 2):
        storage.start()
        for kept in expected.values():
            kept.clear()
        for _ in range(num_steps):
            actions, mean = torch.rand(2, N, 2, generator=generator)
            rewards = torch.rand(N, generator=generator)
            observations.uniform_(generator=generator)
            storage.observe({"actor": observations})
            storage.add(actions, (mean, std), rewards, rewards > 0.5, rewards > 0.75)
            for name, value in zip(expected, (observations.clone(), actions, mean, rewards), strict=True):
                expected[name].append(value)
    rewards = torch.stack(expected["rewards"])
    assert torch.equal(storage.observations["actor"], torch.stack(expected["observations"]))
    assert torch.equal(storage.actions, torch.stack(expected["actions"]))
    assert torch.equal(storage.distribution[0], torch.stack(expected["mean"]))
    assert torch.equal(storage.distribution[1], std.expand(2, N, 2))
    assert torch.equal(storage.rewards, rewards)
    assert torch.equal(storage.dones, rewards > 0.5)
    assert torch.equal(storage.time_outs, rewards > 0.75)
