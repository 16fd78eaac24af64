"""Waits follow from arrivals, and a rank that stays behind is named with its host."""

import logging

import pytest

from hpclab.metrics.stragglers import Stragglers

HOSTS = ["a", "a", "b", "b"]


def iteration(stragglers: list[Stragglers], arrivals: list[float]) -> dict[str, float]:
    """Sum what the ranks share, as the packed sum does, and return rank 0's values."""
    shares = [rank.share(arrival) for rank, arrival in zip(stragglers, arrivals, strict=True)]
    sums = {key: sum(share[key] for share in shares) for key in shares[0]}
    values = [rank.values(sums, iteration_s=1.0) for rank in stragglers]
    assert values == [values[0]] * len(values)
    return values[0]


def ranks() -> list[Stragglers]:
    return [Stragglers(rank, HOSTS) for rank in range(len(HOSTS))]


def test_a_wait_is_the_time_to_the_last_arrival() -> None:
    values = iteration(ranks(), [0.5, 0.75, 1.5, 0.25])
    assert values == {
        "Perf/wait_min": 0.0,
        "Perf/wait_median": 0.875,
        "Perf/wait_max": 1.25,
        "Perf/slowest_rank": 2.0,
    }


def test_one_rank_waits_for_nobody() -> None:
    alone = Stragglers(0, ["a"])
    assert alone.share(1.0) == {}
    assert alone.values({}, 1.0) == {}


@pytest.mark.parametrize(
    ("slow", "arrival_s", "named"), [(50, 0.3, True), (41, 0.3, True), (39, 0.3, False), (50, 0.22, False)]
)
def test_only_who_mostly_stays_behind_for_long_is_named(slow, arrival_s, named, caplog) -> None:
    stragglers = ranks()
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            late = 2 if number < slow else number % 2
            arrivals = [0.2] * 4
            arrivals[late] = arrival_s
            iteration(stragglers, arrivals)
    assert [record.getMessage() for record in caplog.records] == (
        [
            f"rank 2 on b is the slowest in {slow} of the last 50 iterations: the other ranks waited "
            f"{slow / 500:.3f} s of 1.000 s an iteration for it"
        ]
        if named
        else []
    )
