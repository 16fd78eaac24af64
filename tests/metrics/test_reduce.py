"""Numbers of an iteration reach the host in one collective."""

import pytest
import torch

from hpclab.distributed.collectives import Collectives
from hpclab.metrics.reduce import PackedSum
from tests.distributed.ranks import run_on_ranks

CPU = torch.device("cpu")


def test_one_rank_reads_its_own_numbers() -> None:
    packed = PackedSum(Collectives(), CPU)
    numbers = packed.read({"stop": 0.0, "return": torch.tensor(2.5)}, {"loss": torch.tensor(0.5), "rate": 3.0})
    assert numbers == {"stop": 0.0, "return": 2.5, "loss": 0.5, "rate": 3.0}
    assert packed.read({"stop": 1.0}, {}) == {"stop": 1.0, "return": 0.0}


def test_a_name_that_comes_later_is_a_defect() -> None:
    packed = PackedSum(Collectives(), CPU)
    packed.read({"stop": 0.0}, {})
    with pytest.raises(AssertionError, match="new"):
        packed.read({"stop": 0.0, "new": 1.0}, {})


def read(collectives: Collectives) -> tuple[list[dict[str, float]], int]:
    rank = collectives.rank
    packed = PackedSum(collectives, CPU)
    shared = {"b": float(rank), "a": torch.tensor(10.0 * rank)} | ({"only": 7.0} if rank else {})
    first = packed.read(shared, {"own": rank})
    before = collectives.counts.total()
    second = packed.read(shared, {"own": rank})
    assert first == second
    return [first, second], collectives.counts.total() - before


@pytest.mark.distributed
def test_ranks_sum_what_they_share_in_one_collective() -> None:
    for rank, (numbers, collectives) in enumerate(run_on_ranks(read, 2)):
        assert numbers[0] == {"a": 10.0, "b": 1.0, "only": 7.0, "own": float(rank)}
        assert collectives == 1
