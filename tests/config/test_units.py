from __future__ import annotations

import pytest

from hpclab.config.units import parse_budget, parse_memory_mb, parse_walltime_min


@pytest.mark.parametrize(
    ("value", "minutes"),
    [
        (90, 90),
        ("90", 90),
        ("12:30", 13),
        ("12:00:00", 720),
        ("00:00:01", 1),
        ("1-12", 2160),
        ("1-12:30", 2190),
        ("1-12:00:00", 2160),
        ("36h", 2160),
        ("1.5d", 2160),
        ("90min", 90),
        ("30 s", 1),
    ],
)
def test_walltimes(value: object, minutes: int) -> None:
    assert parse_walltime_min(value) == minutes


@pytest.mark.parametrize(
    "value", ["", "soon", "1:2:3:4", "-5", 0, -1, "0", True, 1.5, None, "1-", "1e3", "9" * 400 + "d", 10**99]
)
def test_no_walltimes(value: object) -> None:
    with pytest.raises(ValueError, match="walltime"):
        parse_walltime_min(value)


@pytest.mark.parametrize(
    ("value", "megabytes"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4096M", 4096),
        ("64G", 65536),
        ("64GiB", 65536),
        ("64gb", 65536),
        ("1.5T", 1572864),
        ("1K", 1),
        (None, None),
    ],
)
def test_memory(value: object, megabytes: int | None) -> None:
    assert parse_memory_mb(value) == megabytes


@pytest.mark.parametrize("value", ["", "much", "64X", 0, -1, True, 1.5, "G", "9" * 400 + "T", 10**99])
def test_no_memory(value: object) -> None:
    with pytest.raises(ValueError, match="memory"):
        parse_memory_mb(value)


@pytest.mark.parametrize("value", [0, 5, "unlimited"])
def test_budget(value: object) -> None:
    assert parse_budget(value) == value


@pytest.mark.parametrize("value", [-1, True, 1.5, "5", "never", None])
def test_no_budget(value: object) -> None:
    with pytest.raises(ValueError, match="must be 0 or more, or unlimited"):
        parse_budget(value)
