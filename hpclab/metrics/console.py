"""Progress for people: a live view on a terminal, one line per iteration everywhere else."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from hpclab.metrics import record as tags
from hpclab.metrics.record import Record

_LOGGER = logging.getLogger(__name__)
_REFRESH_S = 0.2
_SMOOTHING = 0.1
"""Weight of the newest iteration in the estimate of the time left."""


class TimeLeft:
    """Estimates when a run is complete, from the time between its iterations."""

    def __init__(self, max_iterations: int, max_env_steps: int | None) -> None:
        self._max_iterations = max_iterations
        self._max_env_steps = max_env_steps
        self._previous: Record | None = None
        self._interval_s: float | None = None

    def update(self, record: Record) -> float | None:
        """Take an iteration and return the time left [s]; None until two are known."""
        previous, self._previous = self._previous, record
        if previous is None:
            return None
        interval = record.time - previous.time
        known = self._interval_s
        self._interval_s = interval if known is None else known + _SMOOTHING * (interval - known)
        remaining = self._max_iterations - record.iteration - 1
        per_iteration = record.env_steps - previous.env_steps
        if self._max_env_steps is not None and per_iteration > 0:
            remaining = min(remaining, math.ceil((self._max_env_steps - record.env_steps) / per_iteration))
        return max(0, remaining) * self._interval_s


class ConsoleSink:
    """Shows records on `console`, and writes a line for each into the rank's log in any case."""

    def __init__(
        self,
        title: str,
        semantics: Sequence[tuple[str, str, str]],
        *,
        max_iterations: int,
        max_env_steps: int | None,
        console: Console | None,
    ) -> None:
        """Show what the run effectively does.

        Args:
            title: name of the run.
            semantics: rows (what, value, meaning).
            max_iterations: iterations of the complete run.
            max_env_steps: environment steps of the complete run, where limited.
            console: where to show; None: only the log.
        """
        self._title = title
        self._max_iterations = max_iterations
        self._time_left = TimeLeft(max_iterations, max_env_steps)
        self._console = console
        self._live: Live | None = None
        self._shown_at = -math.inf
        self._view: RenderableType | None = None
        for what, value, meaning in semantics:
            _LOGGER.info("%s: %s (%s)", what, value, meaning)
        if console is not None:
            console.print(_semantics_table(semantics))
            if console.is_terminal:
                self._live = Live(console=console, auto_refresh=False)
                self._live.start()

    def write(self, record: Record) -> None:
        left = self._time_left.update(record)
        line = plain_line(record, self._max_iterations, left)
        _LOGGER.info("%s", line)
        if self._live is not None:
            self._view = _view(self._title, record, self._max_iterations, left)
            if time.monotonic() - self._shown_at >= _REFRESH_S:
                self._shown_at = time.monotonic()
                self._live.update(self._view, refresh=True)
        elif self._console is not None:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            if self._view is not None:
                self._live.update(self._view, refresh=True)
            self._live.stop()
            self._live = None


def plain_line(record: Record, max_iterations: int, left_s: float | None) -> str:
    """Return one line with what matters most in an iteration."""
    values = record.values
    parts = [f"iteration {record.iteration}/{max_iterations}"]
    if tags.MEAN_REWARD in values:
        parts.append(f"reward {values[tags.MEAN_REWARD]:.2f}")
        parts.append(f"length {values[tags.MEAN_EPISODE_LENGTH]:.1f}")
    parts.append(
        f"{values[tags.TOTAL_FPS]:,.0f} steps/s "
        f"(collect {values[tags.COLLECTION_TIME]:.3f} s, learn {values[tags.LEARNING_TIME]:.3f} s)"
    )
    if left_s is not None:
        parts.append(f"left {clock(left_s)}")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """Return a duration as H:MM:SS."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _semantics_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    table = Table(title="What this run does", title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in rows:
        table.add_row(*row)
    return table


def _view(title: str, record: Record, max_iterations: int, left_s: float | None) -> Panel:
    values = record.values
    done = record.iteration + 1
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    left = f"left {clock(left_s)}" if left_s is not None else ""
    head.add_row(ProgressBar(total=max_iterations, completed=done), f"{done}/{max_iterations}  {left}")
    groups: dict[str, list[tuple[str, float]]] = {}
    for tag, value in values.items():
        group, _, name = tag.partition("/")
        groups.setdefault(group, []).append((name, value))
    left_side = [_numbers(group, groups.pop(group, [])) for group in ("Train", "Policy", "Loss", "Perf")]
    right_side = [_numbers(group.replace("_", " "), rows) for group, rows in groups.items()]
    body = Table.grid(padding=(0, 3), expand=True)
    body.add_column(ratio=1)
    body.add_column(ratio=1)
    body.add_row(Group(*left_side), Group(*right_side))
    return Panel(Group(head, body), title=title, subtitle=f"{record.env_steps:,} environment steps")


def _numbers(title: str, rows: list[tuple[str, float]]) -> RenderableType:
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 1), expand=True)
    table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, value in rows:
        table.add_row(name, f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}")
    return table if rows else Group()
