"""How an attempt ended that could not record it: its owner was killed, or went with its node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hpclab.launch import accounting, jobs, queue
from hpclab.launch.failures import first_error
from hpclab.launch.out_of_memory import hosts_without_memory
from hpclab.launch.starved_tasks import blame, job_output, starved_hosts
from hpclab.run_folder import RunFolder

CAUSES: Final[Mapping[str, jobs.Cause]] = {
    "BOOT_FAIL": "node_failure",
    "NODE_FAIL": "node_failure",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "FAILED": "crashed",
    "OUT_OF_MEMORY": "crashed",
    "COMPLETED": "completed",
}
"""What the state in which Slurm leaves a job means for the run."""
_TIMEOUT_S = 10.0


def close_lost(run: RunFolder, *, own_job: str | None = None) -> None:
    """Record the end of attempts whose owner is gone without having done so. The caller owns the run.

    Args:
        run: its attempts, stop files and request to cancel are read.
        own_job: the job that goes on with the run; Slurm says nothing of its earlier attempts.
    """
    attempts = jobs.read(run)
    for attempt in attempts:
        if attempt.cause is None:
            again = sum(one.job_id == attempt.job_id for one in attempts)
            cause, note = _end_of(run, attempt, None if attempt.job_id == own_job else attempt.job_id, again)
            jobs.finish(run, attempt.number, cause, note=note)


def _end_of(run: RunFolder, attempt: jobs.Attempt, job_id: str | None, num_starts: int) -> tuple[jobs.Cause, str]:
    """Return cause and note; `job_id` may be asked for, and had started the run `num_starts` times."""
    if run.cancel_request.exists():
        return "cancelled", "killed after hpclab cancel, before it had ended"
    if attempt.launcher != "slurm":
        return "crashed", "ended without a word"
    stop_file = run.stop_file(attempt.number)
    why = stop_file.read_text() if stop_file.exists() else None
    known: jobs.Cause | None = None
    if why is not None:
        known = "timeout" if "walltime" in why else "node_failure" if jobs.NODES_LOST in why else None
    if known is None and attempt.job_id and (starved := _starved(run, attempt, attempt.job_id)):
        first = first_error(run, attempt.number)
        if first is None or first.in_collective:
            blame(run, attempt, starved)
        return "crashed", f"killed before it could say so itself: {first_error(run, attempt.number)}"
    state = None if known or job_id is None else _final_state(job_id, num_starts)
    cause = CAUSES.get(state or "")
    if cause is not None and cause != "completed":
        return cause, f"Slurm ended its job as {state}, before it could say so itself"
    if why is not None:
        return known or "preempted", "killed after the notice, before it had ended" + (f": {why}" if why else "")
    return "node_failure", "ended without a word"


def _starved(run: RunFolder, attempt: jobs.Attempt, job_id: str) -> list[str]:
    """Return the nodes whose tasks lack of memory ended: where a task noted the loss of a process, it had lived on."""
    noted = hosts_without_memory(run, attempt.number)
    return [host for host in starved_hosts(run, attempt, job_output(run, job_id)) if host not in noted]


def _final_state(job_id: str, num_starts: int) -> str | None:
    """Return how a job's last attempt ended; None when Slurm does not know, or speaks of a later requeue's end."""
    info = queue.ask(job_id, timeout_s=_TIMEOUT_S)
    if info is None:
        return accounting.final_state(job_id, timeout_s=_TIMEOUT_S)
    return info.state if info.is_finished and info.restarts < num_starts else None
