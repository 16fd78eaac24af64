"""Nodes whose whole task the kernel killed for lack of memory: nothing there can say so any more, but srun does.

Slurm's step has OutOfMemory as its end in the accounting too, but only when the step is over, and without the node.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path

from hpclab.launch import jobs, queue
from hpclab.run_folder import RunFolder, write_atomic

_WORDS = re.compile(r"^srun: error: (\S+): tasks? \S+: Out Of Memory\s*$", re.MULTILINE)
_OUTPUT = re.compile(r"^\s*StdErr=(.+)$", re.MULTILINE)
_ERROR = "out of memory, the kernel killed its node's task and all its ranks; raise slurm.memory, or lower env.num_envs"


def start_words(run: RunFolder, attempt: int) -> str:
    """Return what the first node prints when an attempt starts: a requeued job goes on in the same output."""
    return f"attempt {attempt} of {run.path}: "


def job_output(run: RunFolder, job_id: str) -> Path | None:
    """Return the file into which a job's batch step writes, srun among it; None when it is not known."""
    for folder in (run.submitit, run.path.parent / "submitit"):  # of a run by itself, of a member of a sweep
        path = folder / f"{job_id}_0_log.out"
        if path.is_file():
            return path
    found = _OUTPUT.search(queue.slurm_command("scontrol", "show", "job", job_id, timeout_s=10.0) or "")
    return Path(found[1]) if found and Path(found[1]).is_file() else None


def starved_hosts(run: RunFolder, attempt: jobs.Attempt, output: Path | None) -> list[str]:
    """Return those of an attempt's nodes, in their order, whose tasks ended for lack of memory in srun's words.

    Args:
        run: whose attempt it is.
        attempt: only what came after its start counts.
        output: see `job_output`.
    """
    text = output.read_text(encoding="utf-8", errors="replace") if output is not None else ""
    _, _, own = text.rpartition(start_words(run, attempt.number))
    own, _, _ = own.partition(start_words(run, attempt.number + 1))
    named = {host for match in _WORDS.finditer(own) for host in _expanded(match[1])}
    return [host for host in attempt.hosts if host in named]


def blame(run: RunFolder, attempt: jobs.Attempt, hosts: Iterable[str]) -> None:
    """Write, in the name of the first rank of each of these nodes that has left no error, that it ran out of memory."""
    workers = attempt.num_workers // len(attempt.hosts)
    for host in hosts:
        ranks = range(attempt.hosts.index(host) * workers, (attempt.hosts.index(host) + 1) * workers)
        rank = next((rank for rank in ranks if not run.rank_error(attempt.number, rank).exists()), None)
        if rank is None:
            continue
        record = {"time": time.time(), "host": host, "rank": rank, "iteration": None, "error": _ERROR}
        write_atomic(run.rank_error(attempt.number, rank), json.dumps(record, indent=1) + "\n")


def _expanded(hosts: str) -> list[str]:
    if "[" not in hosts and "," not in hosts:
        return [hosts]
    return (queue.slurm_command("scontrol", "show", "hostnames", hosts, timeout_s=10.0) or "").split()
