"""The ring of finished episodes, by hand."""

import pytest
import torch

from hpclab.errors import CheckpointError
from hpclab.metrics.episodes import EpisodeTracker

CPU = torch.device("cpu")


def totals(tracker: EpisodeTracker) -> tuple[float, float, float]:
    values = tracker.totals()
    return values["count"].item(), values["return"].item(), values["length"].item()


def step(tracker: EpisodeTracker, rewards: list[float], dones: list[bool]) -> None:
    tracker.add(torch.tensor([rewards]), torch.tensor([dones]))


def test_returns_and_lengths_by_hand() -> None:
    tracker = EpisodeTracker(3, CPU, window=4)
    assert totals(tracker) == (0, 0, 0)
    step(tracker, [1.0, 10.0, 100.0], [False, False, True])
    assert totals(tracker) == (1, 100, 1)
    step(tracker, [2.0, 20.0, 200.0], [True, False, False])
    assert totals(tracker) == (2, 100 + 3, 1 + 2)
    step(tracker, [4.0, 40.0, 400.0], [False, True, True])
    assert totals(tracker) == (4, 103 + 70 + 600, 3 + 3 + 2)
    step(tracker, [8.0, 80.0, 800.0], [True, False, False])  # the ring is full: the oldest, 100 in 1 step, goes
    assert totals(tracker) == (4, 3 + 70 + 600 + 12, 2 + 3 + 2 + 2)


def test_the_lowest_and_the_highest_return_are_of_what_the_ring_holds() -> None:
    tracker = EpisodeTracker(2, CPU, window=2)
    assert [value.item() for value in tracker.extremes()] == [torch.inf, -torch.inf]
    step(tracker, [-3.0, 5.0], [True, False])
    assert [value.item() for value in tracker.extremes()] == [-3.0, -3.0]
    step(tracker, [0.0, 2.0], [False, True])
    assert [value.item() for value in tracker.extremes()] == [-3.0, 7.0]
    step(tracker, [1.0, 0.0], [True, False])  # the oldest goes
    assert [value.item() for value in tracker.extremes()] == [1.0, 7.0]


def test_more_endings_at_once_than_the_ring_holds() -> None:
    tracker = EpisodeTracker(5, CPU, window=2)
    step(tracker, [1.0, 2.0, 4.0, 8.0, 16.0], [True, True, True, False, True])
    assert totals(tracker) == (2, 4 + 16, 2)
    step(tracker, [1.0, 1.0, 1.0, 1.0, 1.0], [False, False, False, True, False])
    assert totals(tracker) == (2, 16 + 9, 1 + 2)


@pytest.mark.parametrize("num_steps", [1, 3, 20])
def test_it_agrees_with_a_list_over_many_steps(num_steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tracker, finished, running = EpisodeTracker(7, CPU, window=10), [], [[0.0, 0]] * 7
    for _ in range(60 // num_steps):
        rewards = torch.rand(num_steps, 7, generator=generator)
        dones = torch.rand(num_steps, 7, generator=generator) < 0.2  # of 20 steps, more end than the ring holds
        tracker.add(rewards, dones)
        for gained, ended in zip(rewards.tolist(), dones.tolist(), strict=True):
            running = [[total + r, length + 1] for (total, length), r in zip(running, gained, strict=True)]
            finished += [entry for entry, done in zip(running, ended, strict=True) if done]
            running = [[0.0, 0] if done else entry for entry, done in zip(running, ended, strict=True)]
        recent = finished[-10:]
        expected = (len(recent), sum(entry[0] for entry in recent), sum(entry[1] for entry in recent))
        assert totals(tracker) == pytest.approx(expected, rel=1e-5)


def test_its_state_continues() -> None:
    one, other = EpisodeTracker(2, CPU, window=3), EpisodeTracker(2, CPU, window=3)
    step(one, [1.0, 2.0], [False, True])
    other.load_state_dict({name: tensor.clone() for name, tensor in one.state_dict().items()})
    for tracker in (one, other):
        step(tracker, [4.0, 8.0], [True, True])
    assert totals(one) == totals(other) == (3, 2 + 5 + 8, 1 + 2 + 1)
    with pytest.raises(CheckpointError, match="running"):
        EpisodeTracker(3, CPU, window=3).load_state_dict(one.state_dict())
