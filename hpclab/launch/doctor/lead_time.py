"""Whether a run has time to save, once it is told that it must end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hpclab.launch.doctor.finding import Finding, ok, warning
from hpclab.launch.doctor.slurm_words import number
from hpclab.launch.walltime import Pace, read_pace
from hpclab.run_folder import RunFolder


def newest_pace(runs: Path) -> tuple[str, Pace] | None:
    """Return the name and the measured pace of the run below `runs` that saved last; None when none has saved."""
    entries = [RunFolder(path) for path in (*runs.glob("*"), *runs.glob("*/*"))]  # a sweep's members are one deeper
    saved = sorted((run for run in entries if run.save_time.is_file()), key=lambda run: run.save_time.stat().st_mtime)
    for run in reversed(saved):
        pace = read_pace(run)
        if pace is not None:
            return run.name, pace
    return None


def check_lead_time(
    lead_s: int, partition: Mapping[str, str], config: Mapping[str, str], runs: Path
) -> Iterator[Finding]:
    """Compare the notices that a job gets with what stopping has taken.

    Args:
        lead_s: the job's notice before its walltime ends [s].
        partition: what Slurm says of the job's partition; empty when unknown.
        config: what Slurm says of the cluster.
        runs: folder with earlier runs.
    """
    found = newest_pace(runs)
    if found is None:
        yield ok("lead time", f"{lead_s} s before the walltime's end; no checkpoint in {runs} tells how long one takes")
        return
    name, pace = found
    cost = f"{name} needs up to {pace.lead_s:.0f} s to stop (a checkpoint takes {pace.save_s:.1f} s)"
    if lead_s < pace.lead_s:
        wanted = f"set slurm.signal_lead_s={-(-pace.lead_s // 10) * 10:.0f}"
        yield warning("lead time", f"{lead_s} s before the walltime's end, but {cost}", wanted)
    else:
        yield ok("lead time", f"{lead_s} s before the walltime's end; {cost}")
    mode = partition.get("PreemptMode", "OFF")
    if "OFF" in mode or config.get("PreemptType", "preempt/none") == "preempt/none":
        return
    grace = number(partition.get("GraceTime", "0")) or 0
    if grace < pace.iteration_s + pace.save_s:
        # Slurm kills at the end of the grace time: what was not saved by then is done again.
        text = f"{grace} s of grace when preempted, but {cost}"
        yield warning("grace time", text, "lower run.save_interval: a preemption costs what came after the last save")
    else:
        yield ok("grace time", f"{grace} s when preempted")
