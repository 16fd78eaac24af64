"""The running normaliser."""

from __future__ import annotations

import torch

from hpclab.models.normalizers import RunningNormalizer


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(num, 2, generator=generator) * 3.0 + 5.0 for num in (7, 1, 12)]


def test_before_any_update_only_eps_acts():
    torch.testing.assert_close(RunningNormalizer(2)(torch.full((1, 2), 1.01)), torch.ones(1, 2))


def test_updates_equal_the_moments_of_all_batches():
    normalizer = RunningNormalizer(2)
    for batch in batches():
        normalizer.update(batch)
    rows = torch.cat(batches())
    assert int(normalizer.count) == 20
    torch.testing.assert_close(normalizer.mean[0], rows.mean(0))
    torch.testing.assert_close(normalizer.var[0], rows.var(0, unbiased=False))
    torch.testing.assert_close(normalizer.std, normalizer.var.sqrt())
    expected = (rows - rows.mean(0)) / (rows.std(0, unbiased=False) + 1e-2)
    torch.testing.assert_close(normalizer(rows), expected, rtol=1e-5, atol=1e-5)


def test_merged_moments_continue_from_local_ones_once():
    normalizer = RunningNormalizer(2)
    for batch in batches():
        normalizer.update(batch)
    normalizer.start_exact()
    assert float(normalizer.exact_count) == 20.0
    torch.testing.assert_close(normalizer.exact_mean.float(), normalizer.mean[0])
    torch.testing.assert_close(normalizer.exact_m2.float(), normalizer.var[0] * 20)
    kept = normalizer.exact_mean.clone().add_(1e-9)
    normalizer.exact_mean.copy_(kept)
    normalizer.start_exact()
    assert torch.equal(normalizer.exact_mean, kept)
