"""How one run is doing, from its folder, and from Slurm where it answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock
from hpclab.launch.failures import first_error
from hpclab.launch.job_state import UNFINISHED, RunState, state_of
from hpclab.metrics.jsonl import read_last
from hpclab.metrics.record import COLLECTION_TIME, LEARNING_TIME, MEAN_EPISODE_LENGTH, MEAN_REWARD, TOTAL_FPS
from hpclab.run_folder import RunFolder

_LIVE = ("pending", "held", "starting", "running", "suspended", "completing", "requeued")


@dataclass(frozen=True, slots=True)
class Failure:
    """The rank that failed first in an attempt."""

    attempt: int
    rank: int
    host: str
    iteration: int | None
    error: str
    last_line: str
    """Of its traceback."""
    log: str

    def __str__(self) -> str:
        where = "" if self.iteration is None else f" at iteration {self.iteration}"
        return f"rank {self.rank} on {self.host} failed{where}: {self.error}"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run, as far as its folder and Slurm tell."""

    run: str
    """Folder."""
    state: str
    """In one word; see `job_state.RunState`."""
    detail: str
    """Why: a pending reason, the first error; empty where there is nothing to add."""
    reason: str | None
    """Why Slurm lets it wait, in Slurm's word."""
    expected_start: str | None
    """When Slurm expects it to start, in local time."""
    owner: str | None
    job_id: str | None
    num_attempts: int
    attempts: tuple[jobs.Attempt, ...]
    """Oldest first."""
    first_error: Failure | None
    """What failed first in the newest attempt that crashed."""
    next_commands: tuple[str, ...]
    """What to do now, most useful first; empty when there is nothing to do."""
    sweep: Any
    """What its manifest says of the sweep that it belongs to; None when it belongs to none."""
    num_workers: int | None
    iteration: int | None
    """Iterations done."""
    max_iterations: int | None
    steps_per_s: float | None
    """Environment steps of all ranks per second."""
    mean_reward: float | None
    mean_episode_length: float | None
    left_s: float | None
    """Estimated time to the last iteration [s]; None unless it runs."""
    updated: float | None
    """Time of the last iteration [s since the epoch]."""


def read_status(run: RunFolder) -> RunStatus:
    """Return how a run is doing."""
    attempts: list[jobs.Attempt] = []
    metrics: Mapping[str, Any] = {}
    owner: lock.Owner | None = None
    failure: Failure | None = None
    try:
        attempts = jobs.read(run)
        metrics = read_last(run.metrics / "metrics.jsonl") or {}
        failure = _failure(run, attempts)
        owner = lock.read_owner(run)
        state = state_of(owner, attempts, cancel_requested=run.cancel_request.exists())
    except ConfigError as error:  # one damaged run must not hide the others
        state = RunState("unknown", str(error))
    except OSError as error:
        state = RunState("unknown", f"{error.filename}: {error.strerror}")
    last = attempts[-1] if attempts else None
    detail = state.detail
    if state.name == "crashed":
        started = last if owner is None or owner.job_id in (None, last and last.job_id) else None
        detail = _why_crashed(run, started, failure, state.detail)
    done = metrics["iteration"] + 1 if "iteration" in metrics else None
    limit = _max_iterations(run)
    return RunStatus(
        run=str(run.path),
        state=state.name,
        detail=detail,
        reason=state.reason,
        expected_start=state.expected_start,
        owner=str(owner) if owner is not None and state.name in _LIVE else None,
        job_id=(owner.job_id if owner is not None else None) or (last.job_id if last is not None else None),
        num_attempts=len(attempts),
        attempts=tuple(attempts),
        first_error=failure,
        next_commands=_next_commands(run, state.name, failure),
        sweep=_sweep(run),
        num_workers=None if last is None else last.num_workers,
        iteration=done,
        max_iterations=limit,
        steps_per_s=metrics.get(TOTAL_FPS),
        mean_reward=metrics.get(MEAN_REWARD),
        mean_episode_length=metrics.get(MEAN_EPISODE_LENGTH),
        left_s=_left_s(metrics, done, limit) if state.name == "running" else None,
        updated=metrics.get("time"),
    )


def _failure(run: RunFolder, attempts: Sequence[jobs.Attempt]) -> Failure | None:
    """Return what failed first in the newest attempt that crashed."""
    for attempt in reversed(attempts):
        if attempt.cause in ("crashed", "no_progress"):
            error = first_error(run, attempt.number)
            if error is None:
                continue
            log = str(run.rank_log(attempt.number, error.rank))
            where = (attempt.number, error.rank, error.host, error.iteration)
            return Failure(*where, error.error, error.last_line, log)
    return None


def _why_crashed(run: RunFolder, last: jobs.Attempt | None, failure: Failure | None, detail: str) -> str:
    if last is None:
        return detail or f"its job failed before its workers started; see {run.submitit}"
    if failure is None or failure.attempt != last.number:
        return detail or last.note
    _, mark, why_no_more = last.note.partition("; not requeued: ")
    return f"{failure}{mark}{why_no_more}"


def _next_commands(run: RunFolder, state: str, failure: Failure | None) -> tuple[str, ...]:
    path = shlex.quote(_short(run.path))
    if state in UNFINISHED:
        crashed = failure is not None and state in ("crashed", "no_progress")
        look = (f"hpclab logs {path} --first-error",) if crashed else ()
        return (*look, f"hpclab resume {path}")
    if state == "running":
        return (f"hpclab logs {path} -f", f"hpclab cancel {path}")
    return (f"hpclab cancel {path}",) if state in _LIVE and state != "completing" else ()


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _sweep(run: RunFolder) -> Any:
    with suppress(OSError, ValueError, AttributeError):
        return json.loads(run.manifest.read_text(encoding="utf-8")).get("sweep")
    return None


def _left_s(metrics: Mapping[str, Any], done: int | None, limit: int | None) -> float | None:
    if done is None or limit is None:
        return None
    seconds = (metrics.get(COLLECTION_TIME) or 0.0) + (metrics.get(LEARNING_TIME) or 0.0)
    return max(0, limit - done) * seconds if seconds else None


def _max_iterations(run: RunFolder) -> int | None:
    with suppress(OSError, yaml.YAMLError, TypeError, KeyError):
        # The resolved config holds every setting; to validate it would cost more than all the rest.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return int(yaml.load(run.config.read_text(encoding="utf-8"), Loader=loader)["run"]["max_iterations"])
    return None
