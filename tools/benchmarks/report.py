"""What a benchmark found: each measurement guarded by itself, written to a file as it comes, shown as tables."""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from hpclab.run_folder import write_atomic
from hpclab.versions import versions

_CONSOLE = Console(width=200)


class Report:
    """A JSON object that grows; a measurement that fails leaves its error and does not end the others."""

    def __init__(self, output: Path | None, **about: Any) -> None:
        """Begin.

        Args:
            output: file that holds what is known so far, at any time; None: nothing is written.
            about: further entries of the report's head.
        """
        self._output = output
        self.values: dict[str, Any] = {
            "machine": machine(),
            "versions": versions(),
            "date": time.strftime("%Y-%m-%d"),
            **about,
        }
        self.failed: list[str] = []
        """What failed, by name."""

    def measure(self, name: str, work: Callable[[], Any], into: dict[str, Any] | None = None) -> Any:
        """Do `work` and keep what it returns under `name`; return it, or None where it failed.

        Args:
            name: key of the result.
            work: measures.
            into: a part of the report; the report itself when not given.
        """
        target = self.values if into is None else into
        began = time.monotonic()
        _CONSOLE.print(f"measuring {name}", highlight=False)
        try:
            target[name] = result = work()
        except (Exception, SystemExit) as error:
            lines = traceback.format_exception(error)
            target[name] = {"error": f"{type(error).__name__}: {error}", "traceback": "".join(lines)[-3000:]}
            self.failed.append(name)
            result = None
            _CONSOLE.print("".join(lines)[-3000:], highlight=False, markup=False)
        _CONSOLE.print(f"measured {name} in {time.monotonic() - began:.1f} s", highlight=False)
        self.write()
        return result

    def write(self) -> None:
        """Write what is known so far."""
        if self._output is not None:
            self._output.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._output, self.text())

    def text(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self.values, indent=1) + "\n"


def machine() -> dict[str, Any]:
    """Say on what the measurement runs."""
    about: dict[str, Any] = {"system": platform.platform(), "cpus": len(os.sched_getaffinity(0))}
    if torch.cuda.is_available():
        about |= {"gpu": torch.cuda.get_device_name(0), "gpus": torch.cuda.device_count()}
    return about


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table, with a column for each key."""
    scalars = [{key: value for key, value in row.items() if not isinstance(value, dict | list)} for row in rows]
    columns = list(dict.fromkeys(key for row in scalars for key in row))
    table = Table(*columns)
    for row in scalars:
        table.add_row(*(_cell(row.get(key, "")) for key in columns))
    _CONSOLE.print(f"\n{title}", highlight=False)
    _CONSOLE.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
