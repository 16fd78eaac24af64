"""What state a run is in: from its lock, its attempts, and what Slurm says of its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpclab.launch import accounting, jobs, lock, queue
from hpclab.launch.ends import CAUSES

UNFINISHED = frozenset({"preempted", "timeout", "node_failure", "cancelled", "crashed", "no_progress", "interrupted"})
"""States of a run that nothing runs and that `hpclab resume` goes on with."""

_TIMEOUT_S = 5.0
_HELD = frozenset(
    {
        *("JobHeldUser", "JobHeldAdmin", "RequeueHold", "JobHoldMaxRequeue"),
        *("job_requeued_in_held_state", "launch_failed_requeued_held"),
    }
)
_REASONS = {
    "Resources": "waits for nodes",
    "Priority": "other jobs go first",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job it waits for has failed: cancel it",
    "ReqNodeNotAvail": "its nodes are down, drained or reserved",
    "Reservation": "waits for its reservation to begin",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs now",
    "PartitionTimeLimit": "longer than the partition allows: cancel it, and lower slurm.time",
    "PartitionNodeLimit": "more nodes than the partition allows: cancel it, and lower --nodes",
    "BadConstraints": "no node can ever meet the request: cancel it, and see hpclab doctor",
    "AccountNotAllowed": "the account may not use this partition: cancel it, and set slurm.account",
    "QOSNotAllowed": "the partition does not take this qos: cancel it, and set slurm.qos",
    "InvalidQOS": "no such qos: cancel it, and set slurm.qos",
    "InvalidAccount": "no such account: cancel it, and set slurm.account",
    "Licenses": "waits for a licence",
    "JobArrayTaskLimit": "as many members of its array run as may at once",
}


@dataclass(frozen=True, slots=True)
class RunState:
    """A state in one word, and why."""

    name: str
    """new, pending, held, starting, running, suspended, completing, requeued, unknown; completed or one of
    UNFINISHED."""
    detail: str = ""
    reason: str | None = None
    """Why Slurm lets it wait, in Slurm's word."""
    expected_start: str | None = None
    """When Slurm expects to start it, local time as Slurm prints it."""


def state_of(owner: lock.Owner | None, attempts: Sequence[jobs.Attempt], *, cancel_requested: bool) -> RunState:
    """Return the state of a run; Slurm is asked where a job owns it, and may not answer."""
    last = attempts[-1] if attempts else None
    if owner is not None and owner.job_id is not None:
        return _of_job(owner.job_id, attempts, cancel_requested=cancel_requested)
    if owner is not None and owner.is_alive():
        return RunState("running")
    if last is None:
        return RunState("new")
    if last.cause is None:
        return RunState("interrupted", "its process is gone")
    return RunState(last.cause, last.note)


def _of_job(job_id: str, attempts: Sequence[jobs.Attempt], *, cancel_requested: bool) -> RunState:
    last = attempts[-1] if attempts else None
    info = queue.ask(job_id, timeout_s=_TIMEOUT_S)
    num_starts = sum(one.job_id == job_id for one in attempts)
    counted = info is not None and 0 < num_starts <= info.restarts and not cancel_requested
    if info is not None and not info.is_finished:
        return _of_live_job(job_id, info, last, counted=counted, cancel_requested=cancel_requested)
    ended = last.cause if last is not None and last.job_id == job_id else None
    requeued = ended in ("preempted", "timeout", "node_failure") and not cancel_requested
    comes_back = requeued or (ended == "crashed" and not cancel_requested)  # else the run would be free
    if info is None:
        if queue.is_queued(job_id, timeout_s=_TIMEOUT_S) is None and (ended is None or comes_back):
            return RunState("unknown", f"Slurm cannot be asked about job {job_id} from here")
        if cancel_requested and ended != "completed":
            return RunState("cancelled")
        if ended is None:
            end = accounting.final_state(job_id, timeout_s=_TIMEOUT_S)
            return RunState("interrupted") if end is None else _of_end(end)
        return RunState(ended)
    if info.state == "COMPLETED" and (comes_back or (counted and ended is None)):
        # Between two attempts Slurm shows a requeued job as complete for a moment; no failure ends with exit code 0.
        return _requeued(ended, "Slurm is putting the job back into its queue")
    if ended is None or requeued or (ended in ("preempted", "timeout") and info.state == "CANCELLED"):
        return _of_end(info.state)  # it came after what the folder tells
    if cancel_requested and ended != "completed":
        return RunState("cancelled")
    return RunState(ended, last.note if last is not None and ended != "completed" else "")


def _of_live_job(
    job_id: str, info: queue.JobInfo, last: jobs.Attempt | None, *, counted: bool, cancel_requested: bool
) -> RunState:
    """Return the state of a job that has not ended; `counted`: it was requeued after its last attempt began."""
    again = info.restarts > 0 or (last is not None and last.job_id == job_id)
    match info.state:
        case "PENDING" | "REQUEUED" | "REQUEUE_FED" if info.reason not in _HELD:
            return _pending(info, again=again)
        case "PENDING" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD":
            how = "requeued and held" if again else "held"
            why = f" ({info.reason})" if info.reason else ""
            text = f"{how}{why}; let it go with: scontrol release {job_id}"
            return RunState("held", text, reason=info.reason or info.state)
        case "COMPLETING" | "STOPPED" | "SIGNALING" | "STAGE_OUT":
            ended = last.cause if last is not None and last.job_id == job_id else None
            if counted or (ended in ("preempted", "timeout", "node_failure") and not cancel_requested):
                return _requeued(ended, "its nodes are being cleared")
            return RunState("completing", "" if ended is None else ended)
        case "CONFIGURING":
            return RunState("starting", "its nodes boot")
        case "SUSPENDED":
            return RunState("suspended", "Slurm has suspended it and lets it go on later")
        case _:
            return RunState("running" if info.state in ("RUNNING", "RESIZING") else info.state.lower())


def _requeued(ended: jobs.Cause | None, what: str) -> RunState:
    return RunState("requeued", what if ended is None else f"{ended}; {what}")


def _pending(info: queue.JobInfo, *, again: bool) -> RunState:
    word = info.reason.split(",")[0]
    if word == "BeginTime":
        text = "Slurm lets a requeued job wait a moment" if again else "may not begin earlier"
    elif word.startswith(("QOS", "Assoc")) and word not in _REASONS:
        text = "a limit of the qos or account is reached"
    else:
        text = _REASONS.get(word, "")
    detail = info.reason + (f" ({text})" if text else "")
    prefix = "requeued; " if again and detail else "requeued" if again else ""
    return RunState("pending", prefix + detail, reason=info.reason or None, expected_start=info.start or None)


def _of_end(state: str) -> RunState:
    detail = "out of memory" if state == "OUT_OF_MEMORY" else ""
    if state == "COMPLETED":
        # The folder knows of no end, and only a complete run may end so.
        return RunState("interrupted", "its job has ended without a recorded end")
    return RunState(CAUSES.get(state, state.lower()), detail)
