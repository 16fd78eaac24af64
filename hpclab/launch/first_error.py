"""`hpclab logs --first-error`: which rank failed first, and its traceback."""

from __future__ import annotations

import time
from math import isfinite

from hpclab.launch import jobs
from hpclab.launch.failures import RankError, first_error, launcher_traceback
from hpclab.run_folder import RunFolder

_TAIL_LINES = 20
_GOOD_ENDS = ("completed", "preempted", "timeout", "cancelled")
"""The launcher may well complain in an attempt that ended so, but it did not fail."""


def show_first_error(run: RunFolder, attempt: int | None) -> bool:
    """Print the first failure of an attempt, and say whether there was one.

    Args:
        run: a run.
        attempt: which attempt; the newest one with a failure when not given.

    Raises:
        ConfigError: no such attempt, or none at all.
    """
    attempts = jobs.read(run)
    jobs.check_attempt(run, attempts, attempt)
    for number in range(len(attempts) - 1, -1, -1) if attempt is None else [attempt]:
        error = first_error(run, number)
        if error is not None:
            _show_rank(run, number, error)
            return True
        found = None if attempts[number].cause in _GOOD_ENDS else launcher_traceback(run, number)
        if found is not None:
            host, text = found
            where = f" on {host}" if host else ""
            print(f"attempt {number}: the launcher{where} failed: {text.splitlines()[-1]}")
            print(f"log: {run.launcher_log(number)}\n\n{text}")
            return True
    last = attempts[-1 if attempt is None else attempt]
    how = f"{last.cause}: {last.note}" if last.cause and last.note else last.cause or "it has no recorded end"
    which = "any attempt" if attempt is None else f"attempt {attempt}"
    print(f"{run.path}: no rank of {which} left an error (attempt {last.number}: {how})")
    return False


def _show_rank(run: RunFolder, attempt: int, error: RankError) -> None:
    log = run.rank_log(attempt, error.rank)
    when = time.strftime(", %Y-%m-%d %H:%M:%S", time.localtime(error.time)) if isfinite(error.time) else ""
    print(f"attempt {attempt}{when}: {error}")
    if error.in_collective:
        print("it waited for the other ranks: one of them may have gone before, without a word")
    if error.traceback:
        print(f"log: {log}\n\n{error.traceback.rstrip()}")
        return
    # It was killed: what it wrote last is all there is, a C stack included.
    source = log if log.exists() else run.launcher_log(attempt)
    lines = source.read_text(encoding="utf-8", errors="replace").splitlines() if source.exists() else []
    print(f"log: {source}, the end of it:\n")
    print("\n".join(lines[-_TAIL_LINES:]))
