"""Which rank failed first: from the error files that failing ranks leave, and from what agents say of the others."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from hpclab.errors import HpclabError
from hpclab.launch import jobs
from hpclab.launch.out_of_memory import hosts_without_memory
from hpclab.run_folder import RunFolder

_EXIT = re.compile(
    r" torchrunx\.(?P<host>\S+) ERROR .*failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local_rank>\d+)"
)
"""An agent's line in the launcher's log on the first of its workers that failed; the words after ERROR are torch's."""

OUT_OF_MEMORY = "out of memory, killed by the kernel"

_AGENT_LINE = re.compile(r"\S+ \S+ torchrunx\.(?P<host>\S+) [A-Z]+ (?:\[rank\d+\]:[A-Z].*?\] )?(?P<text>.*)")
"""Any line of an agent or of a worker that has no log of its own yet; torch puts its own prefix before its words."""


@dataclass(frozen=True, slots=True)
class RankError:
    """What a rank wrote before it left, or what its agent saw of its end."""

    rank: int
    host: str
    time: float
    iteration: int | None
    error: str
    traceback: str
    in_collective: bool
    """It failed while it waited for other ranks: most likely because another one had failed."""

    @property
    def last_line(self) -> str:
        """The last line of its traceback; its error where there is none."""
        lines = self.traceback.strip().splitlines()
        return lines[-1].strip() if lines else self.error

    def __str__(self) -> str:
        where = f" at iteration {self.iteration}" if self.iteration is not None else ""
        return f"rank {self.rank} on {self.host} failed{where}: {self.error}"


def first_error(run: RunFolder, attempt: int) -> RankError | None:
    """Return the error of the rank that failed first; None when nothing is known of any.

    A rank that was killed writes nothing: then those that waited for it do, and its agent tells how it ended.
    """
    errors = []
    for path in run.logs(attempt).glob("error-*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            errors.append(
                RankError(
                    rank=int(record["rank"]),
                    host=str(record["host"]),
                    time=float(record["time"]),
                    iteration=record.get("iteration"),
                    error=str(record["error"]),
                    traceback=str(record.get("traceback", "")),
                    in_collective=bool(record.get("in_collective", False)),
                )
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written by a rank that was killed
    wrote = {error.rank for error in errors}
    errors += [error for error in silent_ends(run, attempt) if error.rank not in wrote]
    return min(errors, key=lambda error: (error.in_collective, error.time), default=None)


def silent_ends(run: RunFolder, attempt: int) -> Iterator[RankError]:
    """Return what agents say of ranks that ended in failure, whether or not those wrote why."""
    started = next((one for one in jobs.read(run) if one.number == attempt), None)
    log = run.launcher_log(attempt)
    if started is None or not log.exists():
        return
    workers_per_host = started.num_workers // len(started.hosts)
    starved = hosts_without_memory(run, attempt)
    for match in _EXIT.finditer(log.read_text(encoding="utf-8", errors="replace")):
        if match["host"] not in started.hosts:
            continue
        rank = started.hosts.index(match["host"]) * workers_per_host + int(match["local_rank"])
        # Its time is not known: it goes before ranks that failed while they waited, after those that say why.
        how = _end(int(match["code"]), starved=match["host"] in starved)
        yield RankError(rank, match["host"], inf, None, how, "", in_collective=False)


def _end(code: int, *, starved: bool) -> str:
    if starved and code == -signal.SIGKILL:
        return f"{OUT_OF_MEMORY}; raise slurm.memory, or lower env.num_envs"
    if code >= 0:
        return f"ended with exit code {code}, without a word"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"ended by {name}" + (" (out of memory, or killed by hand)" if name == "SIGKILL" else "")


def describe(run: RunFolder, attempt: int, error: Exception) -> str:
    """Return one line on why a launch failed: the rank that failed first, else what torchrunx says, and its log."""
    first = first_error(run, attempt)
    if first is not None:
        return f"{first}; log: {run.rank_log(attempt, first.rank)}"
    words = " ".join(str(error).split())[:300] or "no message"
    if not isinstance(error, HpclabError):  # our own messages need no class name
        words = f"{type(error).__name__}: {words}"
    return f"{words}; log: {run.launcher_log(attempt)}"


def launcher_traceback(run: RunFolder, attempt: int) -> tuple[str, str] | None:
    """Return the host and the text of the last traceback in the launcher's log, without the log's prefixes.

    It tells of an agent that could not start its workers; None when there is none.
    """
    log = run.launcher_log(attempt)
    if not log.exists():
        return None
    found: tuple[str, list[str]] | None = None
    inside = False
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        match = _AGENT_LINE.fullmatch(line)
        host, text = (match["host"], match["text"]) if match else ("", line)
        if text.startswith("Traceback (most recent call last)"):
            found, inside = (host, [text]), True
        elif inside and found is not None:
            found[1].append(text)
            inside = text.startswith((" ", "\t")) or not text  # the first line without indentation ends it
    return None if found is None else (found[0], "\n".join(found[1]))
