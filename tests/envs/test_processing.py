"""Noise, clip, scale, delay and history of observations, worked by hand."""

from __future__ import annotations

import pytest
import torch

from hpclab.envs.processing import Processed
from hpclab.envs.spec import ObservationTerm, Tracker
from tests.envs.terms.bare_env import bare_env

ALL = torch.tensor([True, True])


class Counter:
    """A term of one column whose value grows by one in every call; the second environment's is tenfold."""

    def __init__(self, env) -> None:
        self.value = 0.0

    def __call__(self) -> torch.Tensor:
        self.value += 1.0
        return torch.tensor([[self.value], [10 * self.value]])


class Episodes:
    """A processed counter and its episodes; the first begins with the value 2, as building asks for the width."""

    def __init__(self, **settings) -> None:
        self._followed: list[Tracker] = []
        env = bare_env(2)
        env.follow = self._followed.append
        self.term = Processed(env, "actor/counter", ObservationTerm(Counter, **settings))
        self.reset(ALL)

    def reset(self, mask: torch.Tensor) -> None:
        for tracker in self._followed:
            tracker.reset(mask)

    def __call__(self) -> torch.Tensor:
        return self.term()


def test_clip_comes_before_scale() -> None:
    term = Episodes(clip=(-5.0, 15.0), scale=0.5)
    assert term().tolist() == [[1.0], [7.5]]


def test_noise_comes_before_clip_and_scale() -> None:
    torch.manual_seed(0)
    several = torch.stack([Episodes(noise=1.0, clip=(2.0, 20.5), scale=10.0)() for _ in range(50)])[:, :, 0]
    assert several.min(dim=0).values.tolist() == [20.0, pytest.approx(190.0, abs=2.0)]
    assert several.max(dim=0).values.tolist() == [pytest.approx(30.0, abs=1.0), 205.0]


def test_history_starts_full_of_the_first_value_and_moves_on_with_the_newest_last() -> None:
    term = Episodes(history=3)
    assert term().tolist() == [[2.0, 2.0, 2.0], [20.0, 20.0, 20.0]]
    assert term()[0].tolist() == [2.0, 2.0, 3.0]
    term.reset(torch.tensor([True, False]))
    assert term().tolist() == [[4.0, 4.0, 4.0], [20.0, 30.0, 40.0]]


def test_delay_holds_values_back_from_the_first_of_the_episode() -> None:
    term = Episodes(delay=(2, 2))
    assert [term()[0, 0].item() for _ in range(5)] == [2.0, 2.0, 2.0, 3.0, 4.0]


def test_delay_is_drawn_for_each_episode_within_its_bounds() -> None:
    torch.manual_seed(0)
    term = Episodes(delay=(0, 2))
    lags = set()
    for _ in range(60):
        term.reset(ALL)
        for _ in range(3):
            term()
        newest = term.term._term.value + 1
        lags.add(newest - term()[0, 0].item())
    assert lags == {0.0, 1.0, 2.0}


@pytest.mark.parametrize("settings", [{"clip": (0.0, 1.0)}, {"scale": 2.0}, {"delay": (0, 1)}, {"history": 2}])
def test_a_term_that_asks_for_more_than_noise_is_not_plain(settings) -> None:
    assert ObservationTerm(Counter, noise=1.0).is_plain
    assert not ObservationTerm(Counter, **settings).is_plain
