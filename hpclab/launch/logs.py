"""`hpclab logs`: the logs of a run's ranks, merged by time, over one attempt or on into the next ones."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock
from hpclab.launch.first_error import show_first_error
from hpclab.launch.follow import Tail, interruptible_wait
from hpclab.launch.manifest import read_manifest
from hpclab.run_folder import RunFolder

_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}")
_ASK_S = 10.0
_NAME = re.compile(r"rank-(\d{4,})\.log")


def logs(run: Path, *, rank: int | None, attempt: int | None, follow: bool, first_error: bool = False) -> None:
    """Print the log of one rank, or of all ranks merged by time with the rank in front of each line.

    Args:
        run: run folder.
        rank: one rank; all when not given.
        attempt: which attempt; the last one when not given.
        follow: go on printing as the logs grow, over attempts to come, until the run ends or Ctrl-C.
        first_error: print instead which rank failed first, and its traceback.

    Raises:
        ConfigError: no run there, no such attempt or rank, or options that exclude each other.
        SystemExit: 1 when the first error was asked for and there is none.
    """
    folder = RunFolder.at(run)
    read_manifest(folder)
    if first_error:
        if follow or rank is not None:
            raise ConfigError("--first-error finds the rank by itself; leave out --rank and --follow")
        if not show_first_error(folder, attempt):
            raise SystemExit(1)
        return
    number = _choose_attempt(folder, attempt, follow=follow)
    if number is None:
        return
    if follow:
        _follow(folder, rank, number, pinned=attempt is not None)
        return
    paths = _rank_logs(folder, number, rank)
    if not paths:
        wanted = "no rank has" if rank is None else f"rank {rank} has no"
        raise ConfigError(f"{folder.logs(number)}: {wanted} log; see {folder.launcher_log(number)}")
    for line in merged({r: Tail(path).lines(partial=True) for r, path in paths.items()}):
        print(line)


def merged(lines_by_rank: dict[int, list[str]]) -> Iterable[str]:
    """Return the lines of several ranks by time, with the rank in front when there are several.

    A line without a time stamp (a traceback, C output) stays behind the line before it.
    """
    if len(lines_by_rank) == 1:
        return next(iter(lines_by_rank.values()))
    keyed = []
    width = len(str(max(lines_by_rank, default=0)))
    for rank, lines in lines_by_rank.items():
        stamp = ""
        for position, line in enumerate(lines):
            match = _STAMP.match(line)
            stamp = match[0].replace(",", ".") if match else stamp
            keyed.append((stamp, rank, position, f"[{rank:{width}}] {line}"))
    return [line for *_, line in sorted(keyed)]


def _choose_attempt(run: RunFolder, attempt: int | None, *, follow: bool) -> int | None:
    attempts, life = jobs.read(run), _Life(run)
    while follow and attempt is None and not attempts and life.goes_on():
        if not interruptible_wait():
            return None
        attempts = jobs.read(run)
    jobs.check_attempt(run, attempts, attempt)
    return len(attempts) - 1 if attempt is None else attempt


def _follow(run: RunFolder, rank: int | None, number: int, *, pinned: bool) -> None:
    tails: dict[int, Tail] = {}
    life = _Life(run)
    while True:
        attempts = jobs.read(run)
        over = attempts[number].cause is not None or not life.goes_on()
        for r, path in _rank_logs(run, number, rank).items():
            tails.setdefault(r, Tail(path))
        new = {r: tail.lines(partial=over) for r, tail in tails.items()}
        several = len(tails) > 1
        for line in merged(new if several else {r: lines for r, lines in new.items() if lines} or {0: []}):
            print(line, flush=True)
        if over:
            if not pinned and len(attempts) > number + 1:
                number, tails = number + 1, {}
                print(f"--- attempt {number} ---", flush=True)
                continue
            if pinned or not life.goes_on():
                return
        if not interruptible_wait():
            return


class _Life:
    """Whether a run has a live owner. Slurm's controller, which answers the whole cluster, is asked now and then."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._job: lock.Owner | None = None
        self._asked = 0.0

    def goes_on(self) -> bool:
        owner = lock.read_owner(self._run)
        if owner is None or owner.job_id is None:
            return owner is not None and owner.is_alive()
        if owner != self._job or time.monotonic() - self._asked > _ASK_S:
            alive = owner.is_alive()
            self._job, self._asked = owner if alive else None, time.monotonic()
            return alive
        return True


def _rank_logs(run: RunFolder, attempt: int, rank: int | None) -> dict[int, Path]:
    found = {}
    for path in run.logs(attempt).glob("rank-*.log"):
        match = _NAME.fullmatch(path.name)
        if match and rank in (None, int(match[1])):
            found[int(match[1])] = path
    return dict(sorted(found.items()))
