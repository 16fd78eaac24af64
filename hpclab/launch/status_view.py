"""How `hpclab status` draws runs: one in full, several as a table, each sweep as a table of its own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpclab.launch.manifest import read_manifest
from hpclab.launch.run_status import RunStatus
from hpclab.run_folder import RunFolder

_WIDTH_OF_A_PIPE = 240
"""grep and less want whole lines."""
_STYLES = {
    "running": "green",
    "completed": "cyan",
    "crashed": "red",
    "no_progress": "red",
    "node_failure": "red",
    "pending": "yellow",
    "requeued": "yellow",
    "starting": "yellow",
    "held": "magenta",
}


def show(found: Sequence[RunStatus], *, clear: bool, one: bool) -> None:
    """Print runs.

    Args:
        found: the runs.
        clear: clear the screen first.
        one: it is the one run that was asked for.
    """
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_OF_A_PIPE)
    if clear:
        console.clear()
    if not found:
        console.print("no runs here yet; start one with hpclab train CONFIG or hpclab submit CONFIG --nodes N")
    elif one:
        _show_one(console, found[0])
    else:
        plain = [each for each in found if each.sweep is None]
        if plain:
            _show_table(console, plain)
        for name in dict.fromkeys(_sweep_name(each) for each in found if each.sweep is not None):
            _show_sweep(console, name, [each for each in found if each.sweep and _sweep_name(each) == name])


def _show_table(console: Any, found: Sequence[RunStatus]) -> None:
    table = _table("run", "state", "job", "attempts", "iteration", "steps/s", "reward", "left", "updated")
    for each in found:
        table.add_row(
            _name(each), _state(each), each.job_id or "", str(each.num_attempts), _progress(each),
            *_numbers(each), _ago(each.updated),
        )  # fmt: skip
    console.print(table)


def _show_sweep(console: Any, name: str, members: Sequence[RunStatus]) -> None:
    rewards = [each.mean_reward for each in members if each.mean_reward is not None]
    best = max(rewards, default=None)
    states = [each.state for each in members]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"sweep {name}: {len(members)} runs ({counts})")
    table = _table("", "run", "values", "state", "iteration", "steps/s", "reward", "left")
    for each in members:
        mark = "*" if best is not None and each.mean_reward == best else ""
        row = (mark, _name(each), _sweep_values(each), _state(each), _progress(each), *_numbers(each))
        table.add_row(*row, style="bold" if mark else "")
    console.print(table)
    if best is not None:
        winner = next(each for each in members if each.mean_reward == best)
        print(f"* best so far: {Path(winner.run).name}, reward {best:.2f} at iteration {winner.iteration}")


def _sweep_name(one: RunStatus) -> str:
    if isinstance(one.sweep, dict):
        return str(one.sweep.get("name") or one.sweep.get("id") or Path(one.run).parent.name)
    return str(one.sweep)


def _sweep_values(one: RunStatus) -> str:
    values = one.sweep.get("values", one.sweep.get("overrides", {})) if isinstance(one.sweep, dict) else {}
    if isinstance(values, dict):
        return " ".join(f"{key}={_plain(value)}" for key, value in values.items())
    return " ".join(map(str, values)) if isinstance(values, list) else str(values)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _show_one(console: Any, one: RunStatus) -> None:
    manifest = read_manifest(RunFolder(Path(one.run)))
    speed, reward, left = _numbers(one)
    rows = {
        "run": f"{one.run} (id {manifest.get('id')}, created {manifest.get('created')})",
        "state": one.state + (f": {one.detail}" if one.detail else ""),
        "owner": one.owner or "",
        "starts": one.expected_start or "",
        "iteration": _progress(one),
        "steps/s": speed,
        "reward": reward,
        "time left": left,
        "updated": _ago(one.updated),
    }
    if one.first_error is not None and str(one.first_error) not in one.detail:
        rows["failure"] = f"attempt {one.first_error.attempt}: {one.first_error}"
    if one.first_error is not None:
        rows["traceback"] = f"{one.first_error.last_line} (in {one.first_error.log})"
    for name, text in rows.items():
        if text:
            print(f"{name:10} {text}")
    attempts = _table("attempt", "job", "hosts", "workers", "start", "iterations", "cause")
    for attempt in one.attempts:
        span = "" if attempt.first_iteration is None else f"{attempt.first_iteration}-{attempt.last_iteration}"
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.start))
        attempts.add_row(
            str(attempt.number), attempt.job_id or "", ",".join(attempt.hosts), str(attempt.num_workers),
            start, span, attempt.cause or "",
        )  # fmt: skip
    if attempts.row_count:
        console.print(attempts, highlight=False)
    for position, command in enumerate(one.next_commands):
        print(f"{'next' if position == 0 else '':10} {command}")


def _table(*names: str) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    right = ("attempts", "iteration", "steps/s", "reward", "left", "updated")
    for name in names:
        table.add_column(
            name, justify="right" if name in right else "left", no_wrap=name not in ("run", "hosts", "values")
        )
    return table


def _state(one: RunStatus) -> str:
    from rich.markup import escape

    style = _STYLES.get(one.state)
    text = escape(f"{one.state} ({one.reason})" if one.reason else one.state)
    return f"[{style}]{text}[/]" if style else text


def _name(one: RunStatus) -> str:
    from rich.markup import escape

    return escape(Path(one.run).name)


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
