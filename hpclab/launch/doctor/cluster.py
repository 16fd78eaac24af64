"""Slurm itself: is it there, and do its settings fit how runs stop and come back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping

from hpclab.launch.doctor.finding import Finding, error, not_here, ok, warning
from hpclab.launch.doctor.slurm_words import number

_MIN_VERSION = (20, 11)
_MIN_KILL_WAIT_S = 10


def is_here() -> bool:
    return shutil.which("scontrol") is not None


def check_cluster(config: Mapping[str, str] | None, partition: Mapping[str, str]) -> Iterator[Finding]:
    """Check the cluster's settings.

    Args:
        config: what `scontrol show config` says; None when it does not answer.
        partition: what Slurm says of the partition that the job would use; empty when it is unknown.
    """
    if not is_here():
        yield not_here("slurm", "no Slurm commands here; hpclab train and hpclab submit --local need none")
        return
    if config is None:
        yield error("slurm", "the controller does not answer", "try scontrol ping; if it is up, set SLURM_CONF")
        return
    yield _version(config)
    yield from _preemption(config, partition)
    yield _tracking(config)
    kill_wait = number(config.get("KillWait", ""))
    if kill_wait is not None and kill_wait < _MIN_KILL_WAIT_S:
        yield warning(
            "KillWait",
            f"{kill_wait} s from the end of the walltime to the kill",
            "raise slurm.signal_lead_s, so that runs have saved before the walltime ends",
        )
    else:
        yield ok("KillWait", f"{kill_wait} s" if kill_wait is not None else "unknown")
    size = number(config.get("MaxArraySize", ""))
    yield ok("MaxArraySize", "unknown" if size is None else f"{size}: job arrays of up to {size} members")
    requeue = config.get("JobRequeue", "1").startswith("1")
    yield ok("JobRequeue", "on" if requeue else "off by default; hpclab's jobs ask for --requeue themselves")
    accounting = config.get("AccountingStorageType", "")
    none = accounting in ("", "(null)", "accounting_storage/none")
    yield ok("accounting", "none; hpclab status does without" if none else accounting)


def _version(config: Mapping[str, str]) -> Finding:
    text = config.get("SLURM_VERSION", "unknown")
    match = re.match(r"(\d+)\.(\d+)", text)
    if match and (int(match[1]), int(match[2])) < _MIN_VERSION:
        return warning("slurm", f"{text}, older than any that hpclab was tried with", "rehearse with --nodes first")
    return ok("slurm", text)


def _preemption(config: Mapping[str, str], partition: Mapping[str, str]) -> Iterator[Finding]:
    kind = config.get("PreemptType", "preempt/none")
    if kind in ("preempt/none", "(null)"):
        yield ok("preemption", "jobs are not preempted here")
        return
    mode = partition.get("PreemptMode") or config.get("PreemptMode", "OFF")
    if "OFF" in mode:
        yield ok("preemption", "jobs in this partition are not preempted")
        return
    if "CANCEL" in mode:
        yield warning(
            "preemption",
            f"PreemptMode={mode}: a preempted job is cancelled, not requeued",
            "within its grace time the run saves and requeues itself; without one, go on by hpclab resume RUN",
        )
    elif "SUSPEND" in mode:
        yield warning(
            "preemption",
            f"PreemptMode={mode}: a preempted job is stopped in place, with its GPU memory kept",
            "collectives may time out meanwhile: raise launch.process_group_timeout_s",
        )
    else:
        yield ok("preemption", f"{kind}, PreemptMode={mode}: a preempted run saves, and goes on by itself")


def _tracking(config: Mapping[str, str]) -> Finding:
    tracking = config.get("ProctrackType", "unknown")
    if tracking in ("proctrack/cgroup", "proctrack/linuxproc"):
        return ok("ProctrackType", tracking)
    return warning(
        "ProctrackType",
        f"{tracking}: Slurm may lose processes that change their session",
        "look for left processes on the nodes after hpclab cancel",
    )
