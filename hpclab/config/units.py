"""Walltime, memory and budgets in the forms that Slurm and people use."""

from __future__ import annotations

import math
import re
from typing import Literal

_CLOCK = re.compile(r"(?:(?P<days>\d+)-)?(?P<fields>\d+(?::\d+){0,2})")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|sec|m|min|h|hours?|d|days?)", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_MEGABYTES = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}
_MAX_S, _MAX_MB = 3650 * 86400, 1024**3


def parse_walltime_min(value: object) -> int:
    """Return a walltime in whole minutes, rounded up.

    Reads what `sbatch --time` reads (90, 12:30, 12:00:00, 1-12, 1-12:00, 1-12:00:00) and 36h, 1.5d, 90min.

    Raises:
        ValueError: not a walltime, or not positive.
    """
    seconds = _walltime_s(value)
    if seconds is None:
        raise ValueError("not a walltime; write minutes (90), HH:MM:SS, D-HH:MM:SS, or 36h, 1.5d")
    if seconds <= 0:
        raise ValueError("a walltime must be longer than zero")
    if seconds > _MAX_S:
        raise ValueError("a walltime must be at most 10 years")
    return math.ceil(seconds / 60)


def _walltime_s(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * 60.0
    if not isinstance(value, str):
        return None
    text = value.strip()
    if match := _DURATION.fullmatch(text):
        return float(match["number"]) * _SECONDS[match["unit"][0].lower()]
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = (*fields, 0, 0)[:3]
        return int(match["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(fields) == 1:  # MM
        return fields[0] * 60.0
    if len(fields) == 2:  # MM:SS
        return fields[0] * 60 + fields[1]
    return fields[0] * 3600 + fields[1] * 60 + fields[2]


def parse_memory_mb(value: object) -> int | None:
    """Return an amount of memory in whole megabytes as Slurm counts them (1 G = 1024 M), rounded up.

    Reads 4096 (MB), 4096M, 64G, 64GB, 64GiB, 1.5T. None stays None.

    Raises:
        ValueError: not an amount of memory, or not positive.
    """
    if value is None:
        return None
    match = None if isinstance(value, bool | float) else _MEMORY.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("not an amount of memory; write 64G, 64GiB or a number of MB")
    megabytes = float(match["number"]) * _MEGABYTES[match["unit"].lower()]
    if megabytes <= 0:
        raise ValueError("an amount of memory must be above zero")
    if megabytes > _MAX_MB:
        raise ValueError("an amount of memory must be at most 1024T")
    return math.ceil(megabytes)


def parse_budget(value: object) -> int | Literal["unlimited"]:
    """Return how often something may happen: 0 or more, or "unlimited".

    Raises:
        ValueError: neither.
    """
    if value == "unlimited":
        return "unlimited"
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be 0 or more, or unlimited")
    return value
