"""Numbers of an iteration reach the host in one collective."""

import pytest
import torch

from hpclab.distributed.collectives import Collectives
from hpclab.metrics.reduce import Metric, PackedSum, Reduction
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


def reduced(collectives: Collectives) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of every kind: rank r has r + 1 episodes of return 10, the last rank none at all of another kind."""
    rank, last = collectives.rank, collectives.rank == collectives.world_size - 1
    metrics = {
        "plain mean": Metric(torch.tensor(float(rank)), "mean"),
        "mean of episodes": Metric(10.0 * (rank + 1) + rank, "mean", per="episodes"),
        "mean of nothing": Metric(0.0, "mean", per="nothing"),
        "sum": Metric(float(rank), "sum"),
        "min": Metric(torch.inf if last else torch.tensor(-5.0 - rank), "min"),
        "max": Metric(-torch.inf if last else 5.0 + rank, "max"),
        "max of nothing": Metric(-torch.inf, "max"),
    }
    counts = {"episodes": rank + 1.0, "nothing": torch.zeros(())}
    found = []
    for sharing in (True, False):
        reduction = Reduction(rank, collectives.world_size if sharing else 1)
        packed = reduction.pack(metrics, counts)
        numbers = PackedSum(collectives, CPU).read(*((packed, {}) if sharing else ({}, packed)))
        found.append(reduction.unpack(metrics, numbers))
    return found[0], found[1]


@pytest.mark.distributed
def test_each_metric_is_reduced_as_it_declares() -> None:
    results = run_on_ranks(reduced, 3)
    expected = {"plain mean": 1.0, "mean of episodes": 63 / 6, "sum": 3.0, "min": -6.0, "max": 6.0}
    assert [together for together, _ in results] == [expected] * 3
    assert results[0][1] == {"plain mean": 0.0, "mean of episodes": 10.0, "sum": 0.0, "min": -5.0, "max": 5.0}
