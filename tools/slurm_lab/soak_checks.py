"""What must hold after a soak."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpclab.launch import jobs
from hpclab.launch.check_list import Check, Look, examine_all
from hpclab.metrics.jsonl import read_curve
from slurm_lab.soak_events import EVENTS
from slurm_lab.soaked_run import SoakedRun

_CLEANUP_S = 15.0
_ITERATION = re.compile(r"\biteration (\d+)/")
_CAUSES = {event.name: event.causes for event in EVENTS}


@dataclass(frozen=True, slots=True)
class Happened:
    """One event as it went."""

    at_s: float
    """Since the soak began [s]."""
    name: str
    what: str
    attempt: int
    iteration: int
    """The last one reported before it."""
    by_itself: bool | None = None
    """Whether the run came back without `hpclab resume`; None when it did not come back."""
    back_s: float | None = None
    """Until the next attempt reported an iteration [s]."""


def examine(run: SoakedRun, events: Sequence[Happened], total: int, world_size: int) -> Iterator[Check]:
    """Look at a complete run of `total` iterations."""
    checks: list[tuple[str, Look]] = [
        ("the run is complete", lambda: _complete(run)),
        ("every iteration exactly once", lambda: _iterations(run, total)),
        ("each attempt goes on where the state was saved", lambda: _goes_on(run)),
        ("causes in jobs.jsonl fit the events", lambda: _causes(run, events)),
        ("every attempt has every rank's log", lambda: _logs(run, world_size)),
        ("no log line is lost", lambda: _lines(run)),
        ("no process is left", lambda: _processes(run)),
        ("the run is free", lambda: (not run.run.lock.exists(), "no lock")),
    ]
    yield from examine_all(checks)


def _complete(run: SoakedRun) -> tuple[bool, str]:
    last = jobs.read(run.run)[-1]
    state = run.state()
    return last.cause == "completed" and state == "COMPLETED", f"{last.cause}, job {state}"


def _iterations(run: SoakedRun, total: int) -> tuple[bool, str]:
    done = [line["iteration"] for line in read_curve(run.run.metrics / "metrics.jsonl")]
    return done == list(range(total)), f"{len(done)} lines of {total}, {len(set(done))} different"


def _goes_on(run: SoakedRun) -> tuple[bool, str]:
    """Every attempt that had time to save loses nothing; after a kill at most what came after the last checkpoint."""
    attempts = [a for a in jobs.read(run.run) if a.first_iteration is not None and a.last_iteration is not None]
    wrong, again = [], 0
    for one, other in pairwise(attempts):
        assert one.last_iteration is not None
        assert other.first_iteration is not None
        repeated = one.last_iteration + 1 - other.first_iteration
        again += max(0, repeated)
        if repeated < 0 or (repeated > 0 and one.cause in ("preempted", "cancelled")):
            wrong.append(f"attempt {other.number} begins with {other.first_iteration} after {one.last_iteration}")
    return not wrong, "; ".join(wrong) or f"{len(attempts)} attempts, {again} iterations run again after kills"


def _causes(run: SoakedRun, events: Sequence[Happened]) -> tuple[bool, str]:
    attempts = jobs.read(run.run)
    hit = {event.attempt: event.name for event in events}
    wrong = [
        f"attempt {attempt.number} is {attempt.cause} after {hit.get(attempt.number, 'nothing')}"
        for attempt in attempts[:-1]
        if attempt.cause not in _CAUSES.get(hit.get(attempt.number, ""), ())
    ]
    return not wrong, "; ".join(wrong) or f"{len(attempts)} attempts, {len(events)} events"


def _logs(run: SoakedRun, world_size: int) -> tuple[bool, str]:
    missing = [
        str(log.relative_to(run.run.path))
        for attempt in jobs.read(run.run)
        for log in (run.run.rank_log(attempt.number, rank) for rank in range(world_size))
        if not log.exists() or f" of {world_size} on " not in log.read_text(errors="replace")
    ]
    return not missing, ", ".join(missing) or "all there"


def _lines(run: SoakedRun) -> tuple[bool, str]:
    """Rank 0's log has a line for each iteration that its attempt began with and finished, without a gap."""
    wrong, count = [], 0
    for attempt in jobs.read(run.run):
        log = run.run.rank_log(attempt.number, 0)
        logged = [int(number) for number in _ITERATION.findall(log.read_text(errors="replace"))] if log.exists() else []
        count += len(logged)
        whole = logged == list(range(logged[0], logged[-1] + 1)) if logged else attempt.last_iteration is None
        if not whole or (attempt.last_iteration is not None and attempt.last_iteration > logged[-1]):
            wrong.append(f"attempt {attempt.number}: {len(logged)} lines up to {logged[-1:]}")
    return not wrong, "; ".join(wrong) or f"{count} iterations logged by rank 0"


def _processes(run: SoakedRun) -> tuple[bool, str]:
    deadline = time.monotonic() + _CLEANUP_S
    while (left := run.processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not left, "; ".join(left) or "only the cluster's own on every host"
