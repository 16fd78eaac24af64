from __future__ import annotations

import pytest
import torch

from hpclab.distributed.bandwidth import measure_all_reduce
from hpclab.distributed.collectives import Collectives
from tests.distributed.ranks import run_on_ranks


def measure(collectives: Collectives) -> float:
    return measure_all_reduce(collectives, torch.device("cpu"), num_bytes=4_000_000)


@pytest.mark.distributed
def test_every_rank_finds_the_same_bandwidth() -> None:
    first, second = run_on_ranks(measure, 2)
    assert first == second
    assert 1e6 < first < 1e12


def test_a_wrong_sum_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="gave 1"):
        measure_all_reduce(Collectives(world_size=2), torch.device("cpu"), num_bytes=400)
