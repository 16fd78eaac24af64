"""Moments merged over ranks equal those of the concatenated samples."""

from __future__ import annotations

import pytest
import torch

from hpclab.checkpoint.state import from_bytes, to_bytes
from hpclab.distributed.moments import Moments, combine, gather, measure
from hpclab.models.normalizers import RunningNormalizer
from tests.distributed.ranks import run_on_ranks

FEATURES, ITERATIONS = 4, 3


def samples(rank: int, iteration: int) -> torch.Tensor:
    """Different numbers of samples for each rank, a constant feature, and a mean far from zero."""
    generator = torch.Generator().manual_seed(100 * rank + iteration)
    rows = torch.randn(5 + 3 * rank + iteration, FEATURES, generator=generator, dtype=torch.float64)
    rows = rows * torch.tensor([1.0, 0.0, 1e-3, 10.0]) + torch.tensor([0.0, 3.25, 1e4, -5.0])
    rows[:, 0] += rank
    return rows


def merge_on_ranks(collectives):
    base = Moments(*(torch.zeros(shape, dtype=torch.float64) for shape in ((), (FEATURES,), (FEATURES,))))
    second = base
    history = []
    saved = to_bytes(RunningNormalizer(FEATURES).state_dict())
    for iteration in range(ITERATIONS):
        rows = samples(collectives.rank, iteration)
        delta, other = gather([measure(rows), measure(rows[:, :2])], collectives)
        base = combine(base, delta)
        second = other
        history.append(base)
        resumed = RunningNormalizer(FEATURES)  # as if each iteration were another attempt's
        resumed.load_state_dict(from_bytes(saved, "test"))
        resumed.start_exact()
        resumed.merge(delta)
        saved = to_bytes(resumed.state_dict())
    return history, second, resumed, dict(collectives.counts)


def assert_moments_of(moments: Moments, rows: torch.Tensor) -> None:
    assert float(moments.num_samples) == len(rows)
    mean = rows.mean(dim=0)
    torch.testing.assert_close(moments.mean, mean, rtol=1e-12, atol=0)
    m2 = (rows - mean).square().sum(dim=0)
    # Around a mean of 1e4 the data itself holds deviations to 1e-12 only relative to that mean.
    torch.testing.assert_close(moments.m2, m2, rtol=1e-12, atol=1e-12 * len(rows))
    assert moments.m2[1] == 0.0


@pytest.mark.distributed
@pytest.mark.parametrize("world_size", [2, 3])
def test_three_merges_equal_the_concatenation_and_count_no_sample_twice(world_size):
    results = run_on_ranks(merge_on_ranks, world_size)
    for history, second, resumed, counts in results:
        for iteration, moments in enumerate(history):
            rows = [samples(rank, i) for i in range(iteration + 1) for rank in range(world_size)]
            assert_moments_of(moments, torch.cat(rows))
        assert_moments_of(second, torch.cat([samples(rank, ITERATIONS - 1)[:, :2] for rank in range(world_size)]))
        assert_moments_of(Moments(resumed.exact_count, resumed.exact_mean, resumed.exact_m2), torch.cat(rows))
        normalized = resumed(torch.cat(rows).float())
        assert normalized.isfinite().all()
        assert normalized[:, 1].abs().max() == 0.0, "a constant feature stays what it is"
        assert counts == {"all_gather": ITERATIONS}
    for history, *_ in results[1:]:
        for ours, theirs in zip(history, results[0][0], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_combining_with_nothing_changes_nothing():
    nothing = Moments(*(torch.zeros(shape, dtype=torch.float64) for shape in ((), (FEATURES,), (FEATURES,))))
    rows = samples(0, 0)
    assert_moments_of(combine(nothing, measure(rows)), rows)
    assert_moments_of(combine(measure(rows), nothing), rows)
    assert all(torch.equal(value, torch.zeros_like(value)) for value in combine(nothing, nothing))


def test_combine_by_hand():
    a, b = measure(torch.tensor([[1.0], [3.0]])), measure(torch.tensor([[8.0]]))
    count, mean, m2 = combine(a, b)
    assert (float(count), float(mean), float(m2)) == (3.0, 4.0, 26.0)


def test_exact_moments_reach_what_the_normaliser_computes_with():
    rows = samples(0, 0)[:, [0, 1, 3]]  # what float32 can represent
    normalizer = RunningNormalizer(3)
    normalizer.set_exact(*measure(rows))
    expected = (rows - rows.mean(0)) / (rows.std(0, unbiased=False) + 1e-2)
    torch.testing.assert_close(normalizer(rows.float()).double(), expected, rtol=1e-5, atol=1e-5)
    assert int(normalizer.count) == len(rows)
