"""How far a replay is from a recording: one `Error` per key, and the table that is printed of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


class UnsupportedFormatError(Exception):
    """A file that this version does not replay; the message is the one line shown to the user."""


@dataclass(frozen=True, slots=True)
class Error:
    """Distance of one recorded array, or of every array under one key, from its replay."""

    key: str
    worst: float
    """Largest error of any value."""
    p95: float
    """Error that 95 % of the values stay under."""
    tolerance: float
    """What `ok` was judged by; which of `worst` and `p95` it bounds is the check's choice."""
    ok: bool


def relative_error(key: str, actual: ArrayLike, expected: ArrayLike, tolerance: float) -> Error:
    """Compare two arrays of one shape: |actual - expected| relative to the largest |expected|; `worst` decides.

    A difference in shape, or a value that is not finite on one side only, is an infinite error.
    """
    a, b = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != b.shape:
        return Error(key, np.inf, np.inf, tolerance, False)
    if a.size == 0:
        return Error(key, 0.0, 0.0, tolerance, True)
    finite = np.isfinite(b)
    scale = np.abs(b[finite]).max(initial=0.0) or 1.0
    difference = np.full(a.shape, np.inf)
    np.subtract(a, b, out=difference, where=finite & np.isfinite(a))
    difference = np.where(~finite & ((a == b) | (np.isnan(a) & np.isnan(b))), 0.0, np.abs(difference)) / scale
    worst = float(difference.max())
    p95 = float(np.quantile(difference, 0.95, method="higher"))
    return Error(key, worst, p95, tolerance, worst <= tolerance)


def worst_by_key(errors: list[Error]) -> dict[str, Error]:
    """Merge errors of the same key (several ranks, iterations): the largest of each number, ok when all are."""
    merged: dict[str, Error] = {}
    for error in errors:
        seen = merged.get(error.key, error)
        merged[error.key] = Error(
            error.key,
            max(seen.worst, error.worst),
            max(seen.p95, error.p95),
            min(seen.tolerance, error.tolerance),
            seen.ok and error.ok,
        )
    return merged


def format_table(errors: Mapping[str, Error]) -> str:
    """Return the table of errors, one line per key."""
    width = max((len(key) for key in errors), default=3)
    lines = [f"{'key':<{width}}  {'worst':>9}  {'p95':>9}  {'tolerance':>9}"]
    for error in errors.values():
        verdict = "ok" if error.ok else "FAILED"
        lines.append(f"{error.key:<{width}}  {error.worst:9.2e}  {error.p95:9.2e}  {error.tolerance:9.1e}  {verdict}")
    return "\n".join(lines)
