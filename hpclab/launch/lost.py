"""Which node a job lost: its ranks left no word, or its agent was killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpclab.launch import jobs, queue
from hpclab.launch.failures import OUT_OF_MEMORY, first_error, silent_ends
from hpclab.launch.handover import Handover
from hpclab.launch.out_of_memory import hosts_without_memory
from hpclab.launch.starved_tasks import blame, job_output, starved_hosts
from hpclab.run_folder import RunFolder

_POLL_S = 0.25
_WAIT_S = 5.0
_WAIT_ENDING_S = 1.0


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node that dropped out of a running job."""

    host: str
    cause: jobs.Cause
    """node_failure, or crashed where the node itself says that only its agent died."""
    reason: str

    def __str__(self) -> str:
        return f"{self.host}: {self.reason}"


def note_lost_nodes(stop_file: Path, hosts: Sequence[str]) -> list[str]:
    """Write into the stop file which of a job's nodes Slurm has given up, for whoever has to say why the job ended."""
    down = queue.down_nodes(hosts)
    if down:
        with stop_file.open("a") as file:
            file.write(f"{'; ' if file.tell() else ''}{jobs.NODES_LOST}: {', '.join(down)}")
    return down


def lost_node(run: RunFolder, attempt: int, handover: Handover, *, wait_s: float | None = None) -> LostNode | None:
    """Return the node whose loss ended an attempt; None when a rank failed first, which `first_error` then names.

    A node whose task was killed for lack of memory counts as its first rank's failure.

    Args:
        run: its error files and launcher's log are read.
        attempt: the attempt that has just failed.
        handover: what the nodes' tasks said of their agents.
        wait_s: for ranks that fail only because another one did, and have not written so yet. When not given, not long
            where TERM has come: srun ends the step because a node's task has died, and will kill this one too.
    """
    if wait_s is None:
        wait_s = _WAIT_ENDING_S if run.stop_file(attempt).exists() else _WAIT_S
    started = next(one for one in jobs.read(run) if one.number == attempt)
    others = len(started.hosts) > 1  # than this one, whose task lives
    output = job_output(run, started.job_id) if others and started.job_id is not None else None
    end = time.monotonic() + wait_s
    while True:
        killed = _killed_agent(run, started, handover)
        if killed is not None:
            return killed
        first = first_error(run, attempt)
        if first is not None and not first.in_collective:
            return None
        silent = _silent_hosts(run, started)
        if not silent:
            return None
        starved = [host for host in starved_hosts(run, started, output) if host in silent]
        if starved:
            blame(run, started, starved)
            return None
        if time.monotonic() > end:
            break
        time.sleep(_POLL_S)
    if len(silent) == len(started.hosts):
        return None  # nobody says anything: nothing tells the nodes apart
    return LostNode(silent[0], "node_failure", "no word from this node and its ranks")


def describe_exit(code: int) -> str:
    """Return a process's exit code in words."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _killed_agent(run: RunFolder, started: jobs.Attempt, handover: Handover) -> LostNode | None:
    ended = [json.loads(path.read_text()) | {"index": path.stem} for path in handover.folder.glob("*.ended")]
    if not ended:
        return None
    first = min(ended, key=lambda record: float(record["time"]))
    host, code = started.hosts[int(first["index"])], int(first["code"])
    starved = code == -signal.SIGKILL and host in hosts_without_memory(run, started.number)
    return LostNode(host, "crashed", f"its agent {describe_exit(code)}{f': {OUT_OF_MEMORY}' if starved else ''}")


def _silent_hosts(run: RunFolder, started: jobs.Attempt) -> list[str]:
    hosts = started.hosts
    workers = started.num_workers // len(hosts)
    spoke = {error.host for error in silent_ends(run, started.number)}
    for path in run.logs(started.number).glob("error-*.json"):
        rank = int(path.stem.removeprefix("error-"))
        spoke.add(hosts[min(rank // workers, len(hosts) - 1)])
    return [host for host in hosts if host not in spoke]
