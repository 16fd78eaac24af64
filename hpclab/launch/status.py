"""`hpclab status`: how runs are doing."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch.follow import interruptible_wait
from hpclab.launch.run_status import read_status
from hpclab.launch.status_view import show
from hpclab.run_folder import RunFolder

_WATCH_S = 2.0
_WATCH_S_PER_RUN = 0.1
"""Of a big sweep, whose members are a question to Slurm's controller each."""
_QUESTIONS_AT_ONCE = 8


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
        folders = _folders(run)
        with ThreadPoolExecutor(_QUESTIONS_AT_ONCE) as pool:  # nearly all of the time is Slurm's
            found = list(pool.map(read_status, folders))
        if as_json:
            print(json.dumps([asdict(one) for one in found], indent=1), flush=True)
        else:
            shown_in_full = run is not None and [Path(status.run) for status in found] == [RunFolder.at(run).path]
            show(found, clear=watch, one=shown_in_full)
        if not watch or not interruptible_wait(max(_WATCH_S, _WATCH_S_PER_RUN * len(found))):
            return


def _folders(path: Path | None) -> list[RunFolder]:
    if path is None:
        return _runs_in(Path("runs"))
    run = RunFolder.at(path)
    if run.manifest.exists():
        return [run]
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; name a run folder, or the folder that holds runs")
    found = _runs_in(path)
    if not found:
        raise ConfigError(f"{path}: holds no run")
    return found


def _runs_in(path: Path, *, depth: int = 2) -> list[RunFolder]:
    """Return the runs in a folder, and those in its folders that are no runs: a sweep's members.

    Somebody else's private run in a folder that several people share is named on standard error.
    """
    found = []
    for entry in sorted(path.iterdir()) if path.is_dir() else []:
        try:
            if (entry / "run.json").is_file():
                found.append(RunFolder.at(entry))
            elif depth > 1 and entry.is_dir():
                found += _runs_in(entry, depth=depth - 1)
        except PermissionError:
            print(f"{entry}: not shown: you may not read it", file=sys.stderr)
    return found
