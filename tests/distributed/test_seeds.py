"""Random streams of ranks, seeds and purposes share nothing; mjlab's preset keeps seed + rank."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hpclab.config.schema import RunConfig
from hpclab.distributed.seeds import seed_words, start_streams


@pytest.fixture(autouse=True)
def streams() -> Iterator[None]:
    """Leave the streams of this process as they were."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(torch_state)


def draws(preset: str, seed: int, rank: int, iteration: int = 0) -> tuple[float, float, float]:
    config = RunConfig.model_validate({"task": "t", "seed": seed, "sync": {"preset": preset}})
    start_streams(config, rank, iteration)
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_streams_of_adjacent_seeds_ranks_and_later_starts_differ() -> None:
    places = list(itertools.product(range(5), range(5), (0, 1, 50)))
    for stream in zip(*(draws("global", *place) for place in places), strict=True):
        assert len(set(stream)) == len(places)
    assert draws("global", 3, 2) == draws("global", 3, 2)
    words = {seed_words(*place) for place in itertools.product(range(8), range(8), ("python", "torch"), (0, 1))}
    assert len(words) == 8 * 8 * 2 * 2


def test_the_streams_of_one_rank_are_not_each_others() -> None:
    assert seed_words(1, 0, "python") != seed_words(1, 0, "numpy") != seed_words(1, 0, "torch")


def test_recorded_words_do_not_change_between_versions() -> None:
    assert seed_words(42, 3, "torch", 50) == (132620989, 3925327872, 2899443518, 3433893787)


def test_mjlabs_preset_counts_seeds_up_by_rank() -> None:
    assert draws("mjlab", 3, 2) == draws("mjlab", 5, 0) == draws("mjlab", 4, 1, iteration=9)
    torch.manual_seed(5)
    assert draws("mjlab", 3, 2)[2] == float(torch.rand((), generator=torch.Generator().manual_seed(5)))
