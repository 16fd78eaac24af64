"""`hpclab status`: how runs are doing, from their folders, and from Slurm where it answers."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock, queue
from hpclab.launch.failures import first_error
from hpclab.launch.follow import interruptible_wait
from hpclab.launch.manifest import read_manifest
from hpclab.metrics.jsonl import read_last
from hpclab.metrics.record import MEAN_EPISODE_LENGTH, MEAN_REWARD, TOTAL_FPS
from hpclab.run_folder import RunFolder

_WATCH_S = 2.0
_STATE_STYLES = {"running": "green", "completed": "cyan", "crashed": "red", "pending": "yellow"}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run, as far as its folder and Slurm tell."""

    run: str
    """Folder."""
    state: str
    """new, pending, running, completing, completed, preempted, timeout, cancelled, crashed, node_failure, interrupted,
    unknown."""
    detail: str
    """Why: a pending reason, the first error; empty where there is nothing to add."""
    owner: str | None
    job_id: str | None
    num_attempts: int
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


def status(run: Path | None, *, as_json: bool, watch: bool) -> None:
    """Print how one run, or every run below `runs/` here, is doing.

    Args:
        run: a run folder, or a folder that holds runs; `runs` when not given.
        as_json: print one JSON array with one object per run.
        watch: print again every few seconds, until Ctrl-C.

    Raises:
        ConfigError: there is no such folder, or no run in it, though it was named.
    """
    while True:
        found = [read_status(folder) for folder in _folders(run)]
        if as_json:
            print(json.dumps([asdict(one) for one in found], indent=1), flush=True)
        else:
            _show(found, clear=watch, one=run is not None and len(found) == 1 and Path(found[0].run) == run.absolute())
        if not watch or not interruptible_wait(_WATCH_S):
            return


def read_status(run: RunFolder) -> RunStatus:
    """Return how a run is doing."""
    attempts = jobs.read(run)
    last = attempts[-1] if attempts else None
    owner = lock.read_owner(run)
    metrics = read_last(run.metrics / "metrics.jsonl") or {}
    state, detail = _state(owner, last, run.cancel_request.exists())
    if state == "crashed" and last is not None:
        error = first_error(run, last.number)
        detail = str(error) if error is not None else last.note
    done = metrics["iteration"] + 1 if "iteration" in metrics else None
    limit = _max_iterations(run)
    return RunStatus(
        run=str(run.path),
        state=state,
        detail=detail,
        owner=str(owner) if owner is not None and state in ("running", "pending", "completing") else None,
        job_id=(owner.job_id if owner is not None else None) or (last.job_id if last is not None else None),
        num_attempts=len(attempts),
        num_workers=None if last is None else last.num_workers,
        iteration=done,
        max_iterations=limit,
        steps_per_s=metrics.get(TOTAL_FPS),
        mean_reward=metrics.get(MEAN_REWARD),
        mean_episode_length=metrics.get(MEAN_EPISODE_LENGTH),
        left_s=_left_s(metrics, done, limit) if state == "running" else None,
        updated=metrics.get("time"),
    )


def _state(owner: lock.Owner | None, last: jobs.Attempt | None, cancel_requested: bool) -> tuple[str, str]:
    if owner is not None and owner.job_id is not None:
        info = queue.ask(owner.job_id, timeout_s=5.0)
        if info is not None and not info.is_finished:
            detail = ", ".join(part for part in (info.reason, info.start and f"start {info.start}") if part)
            return info.state.lower(), detail if info.state == "PENDING" else ""
        if info is None and queue.is_queued(owner.job_id, timeout_s=5.0) is None:
            return "unknown", f"Slurm cannot be asked about job {owner.job_id} from here"
        ended = last.cause if last is not None and last.job_id == owner.job_id else None
        if ended in ("preempted", "timeout"):  # and was requeued, so that this end is another one
            ended = "cancelled" if cancel_requested else None if info is not None else ended
        return ended or (info.state.lower() if info is not None else "interrupted"), ""
    if owner is not None and owner.is_alive():
        return "running", ""
    if last is None:
        return "new", ""
    return (last.cause, last.note) if last.cause is not None else ("interrupted", "its process is gone")


def _left_s(metrics: dict[str, Any], done: int | None, limit: int | None) -> float | None:
    if done is None or limit is None:
        return None
    seconds = metrics.get("Perf/collection_time", 0.0) + metrics.get("Perf/learning_time", 0.0)
    return max(0, limit - done) * seconds if seconds else None


def _max_iterations(run: RunFolder) -> int | None:
    with suppress(OSError, yaml.YAMLError, TypeError, KeyError):
        # The resolved config holds every setting; to validate it would cost more than all the rest.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return int(yaml.load(run.config.read_text(encoding="utf-8"), Loader=loader)["run"]["max_iterations"])
    return None


def _folders(path: Path | None) -> list[RunFolder]:
    if path is None:
        return _runs_in(Path("runs"))
    run = RunFolder(path.absolute())
    if run.manifest.exists():
        return [run]
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run folder, or the folder that holds runs")
    found = _runs_in(path)
    if not found:
        raise ConfigError(f"{path}: holds no run")
    return found


def _runs_in(path: Path) -> list[RunFolder]:
    entries = sorted(path.iterdir()) if path.is_dir() else []
    return [RunFolder(entry.absolute()) for entry in entries if (entry / "run.json").is_file()]


def _show(found: list[RunStatus], *, clear: bool, one: bool) -> None:
    from rich.console import Console

    console = Console()
    if clear:
        console.clear()
    if not found:
        console.print("no runs here yet; start one with hpclab train CONFIG or hpclab submit CONFIG --nodes N")
    elif one:
        _show_one(console, found[0])
    else:
        _show_table(console, found)


def _show_table(console: Any, found: list[RunStatus]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("run", "state", "job", "attempts", "iteration", "steps/s", "reward", "left", "updated"):
        table.add_column(name, justify="left" if name in ("run", "state", "job") else "right", no_wrap=name == "state")
    for one in found:
        style = _STATE_STYLES.get(one.state, "")
        table.add_row(
            Path(one.run).name, f"[{style}]{one.state}[/]" if style else one.state, one.job_id or "",
            str(one.num_attempts), _progress(one), *_numbers(one), _ago(one.updated),
        )  # fmt: skip
    console.print(table)


def _show_one(console: Any, one: RunStatus) -> None:
    from rich.table import Table

    run = RunFolder(Path(one.run))
    manifest = read_manifest(run)
    speed, reward, left = _numbers(one)
    rows = {
        "run": f"{one.run} (id {manifest.get('id')}, created {manifest.get('created')})",
        "state": one.state + (f": {one.detail}" if one.detail else ""),
        "owner": one.owner or "",
        "iteration": _progress(one),
        "steps/s": speed,
        "reward": reward,
        "time left": left,
        "updated": _ago(one.updated),
    }
    for name, text in rows.items():
        if text:
            print(f"{name:10} {text}")
    attempts = Table(box=None, header_style="bold")
    for name in ("attempt", "job", "hosts", "workers", "start", "iterations", "cause"):
        attempts.add_column(name, no_wrap=name != "hosts")
    for attempt in jobs.read(run):
        span = "" if attempt.first_iteration is None else f"{attempt.first_iteration}-{attempt.last_iteration}"
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.start))
        attempts.add_row(
            str(attempt.number), attempt.job_id or "", ",".join(attempt.hosts), str(attempt.num_workers),
            start, span, attempt.cause or "",
        )  # fmt: skip
    if attempts.row_count:
        console.print(attempts, highlight=False)


def _progress(one: RunStatus) -> str:
    return f"{one.iteration or 0}/{one.max_iterations or '?'}"


def _numbers(one: RunStatus) -> tuple[str, str, str]:
    speed = "" if one.steps_per_s is None else f"{one.steps_per_s:,.0f}"
    reward = "" if one.mean_reward is None else f"{one.mean_reward:.2f}"
    return speed, reward, "" if one.left_s is None else _duration(one.left_s)


def _ago(moment: float | None) -> str:
    return "" if moment is None else f"{_duration(max(0.0, time.time() - moment))} ago"


def _duration(seconds: float) -> str:
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}d {clock}" if days else clock
