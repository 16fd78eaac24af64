"""jobs.jsonl: every attempt at a run, one line when it starts and one when it ends."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from hpclab.errors import ConfigError
from hpclab.run_folder import RunFolder, errors_named

Cause = Literal["completed", "preempted", "timeout", "cancelled", "crashed", "node_failure", "no_progress"]
Launcher = Literal["in_process", "local", "pseudo_nodes", "slurm"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run's workers. `end` and `cause` are None while it runs, and when its end was never written."""

    number: int
    launcher: Launcher
    hosts: tuple[str, ...]
    num_workers: int
    start: float
    """[s since the epoch]"""
    job_id: str | None = None
    end: float | None = None
    first_iteration: int | None = None
    last_iteration: int | None = None
    """The last iteration that was finished."""
    cause: Cause | None = None
    note: str = ""


NODES_LOST = "nodes lost"
"""In a stop file: the notice came because Slurm had given up a node of the job."""


def begin(
    run: RunFolder, launcher: Launcher, *, hosts: Sequence[str], num_workers: int, job_id: str | None = None
) -> int:
    """Record the start of an attempt and return its number. The caller owns the run, and has closed what was lost."""
    number = len(read(run))
    record = {"event": "start", "attempt": number, "launcher": launcher, "hosts": list(hosts), "job_id": job_id}
    _append(run, record | {"num_workers": num_workers, "time": time.time()})
    return number


def finish(run: RunFolder, number: int, cause: Cause, *, note: str = "") -> None:
    """Record the end of an attempt, with the iterations that metrics.jsonl has of it; the last record holds.

    A disk that takes no record changes nothing about the end itself: the next attempt finds this one lost.
    """
    record = {"event": "end", "attempt": number, "cause": cause, "note": note, "time": time.time()}
    try:
        first, last = _iterations(run, number)
        _append(run, record | {"first_iteration": first, "last_iteration": last})
    except OSError as error:
        print(f"the end of attempt {number} ({cause}) could not be recorded: {error}", file=sys.stderr, flush=True)


def as_ended(run: RunFolder, number: int, cause: Cause) -> list[Attempt]:
    """Return all attempts, the given one as if it had just ended so."""
    first, last = _iterations(run, number)
    return [
        replace(one, end=time.time(), cause=cause, first_iteration=first, last_iteration=last)
        if one.number == number
        else one
        for one in read(run)
    ]


def read(run: RunFolder) -> list[Attempt]:
    """Return all attempts, oldest first; a line that a crash left incomplete is skipped.

    Raises:
        ConfigError: a whole line is no record of an attempt.
    """
    starts: dict[int, dict[str, Any]] = {}
    ends: dict[int, dict[str, Any]] = {}
    try:
        for record in _records(run.jobs):
            (starts if record.get("event") == "start" else ends)[int(record["attempt"])] = record
        return [_attempt(number, starts[number], ends.get(number)) for number in sorted(starts)]
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{run.jobs}: holds a line that is no record of an attempt ({type(error).__name__}: {error}); "
            "remove that line, or choose another run.name"
        ) from error


def check_attempt(run: RunFolder, attempts: Sequence[Attempt], number: int | None) -> None:
    """Check that an attempt is among those of a run; None is any.

    Raises:
        ConfigError: it is not.
    """
    if not attempts:
        raise ConfigError(f"{run.path}: has not started yet; see hpclab status {run.argument}")
    if number is not None and number >= len(attempts):
        raise ConfigError(f"{run.path}: has no attempt {number}; the last one is {len(attempts) - 1}")


def _attempt(number: int, start: dict[str, Any], end: dict[str, Any] | None) -> Attempt:
    end = end or {}
    cause = end.get("cause")
    return Attempt(
        number=number,
        launcher=start["launcher"],
        hosts=tuple(start["hosts"]),
        num_workers=start["num_workers"],
        start=start["time"],
        job_id=start["job_id"],
        end=end.get("time"),
        first_iteration=end.get("first_iteration"),
        last_iteration=end.get("last_iteration"),
        cause=cause if cause in get_args(Cause) else None,
        note=end.get("note", ""),
    )


def _append(run: RunFolder, record: dict[str, Any]) -> None:
    line = (json.dumps(record) + "\n").encode()
    with errors_named(run.jobs), run.jobs.open("a+b") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            line = b"\n" + line  # a crash tore the last one: this one must not be lost with it
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _iterations(run: RunFolder, number: int) -> tuple[int | None, int | None]:
    done = [r["iteration"] for r in _records(run.metrics / "metrics.jsonl") if r.get("attempt") == number]
    return (done[0], done[-1]) if done else (None, None)


def _records(path: os.PathLike[str]) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            lines = file.readlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in records if isinstance(record, dict)]
