"""What the soak does to a run, and which ends of an attempt fit each event."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from slurm_lab import cluster
from slurm_lab.settings import CONTROLLER, load_settings
from slurm_lab.soaked_run import SoakedRun

_DOWN_S = 60.0
_PREEMPTED_S = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of event."""

    name: str
    happen: Callable[[SoakedRun, random.Random], str]
    """Do it, and return what exactly was done."""
    causes: frozenset[str]
    """Causes in jobs.jsonl that fit."""


def preemption(run: SoakedRun, rng: random.Random) -> str:
    """A job of the higher partition takes both nodes."""
    command = ("sbatch", "--parsable", "--output=/dev/null", "--partition=high", "--nodes=2", "--exclusive")
    run.on(CONTROLLER, *command, "--wrap=true")
    return "both nodes taken"


def preemption_without_grace(run: SoakedRun, rng: random.Random) -> str:
    """The same in a partition that gives no grace time: TERM at once, and nothing to ask for."""
    partition = ("scontrol", "update", "partitionname=low")
    run.on(CONTROLLER, *partition, "gracetime=0")
    try:
        preemption(run, rng)
        run.wait(lambda: run.state() != "RUNNING", "the preemption", _PREEMPTED_S)
    finally:
        run.on(CONTROLLER, *partition, f"gracetime={load_settings(run.layout).grace_s}")
    return "both nodes taken, no grace"


def usr2(run: SoakedRun, rng: random.Random) -> str:
    run.on(CONTROLLER, "scancel", "--signal=USR2", run.job_id)
    return "USR2 to all tasks"


def rank_kill(run: SoakedRun, rng: random.Random) -> str:
    rank, host, pid = rng.choice(run.ranks())
    run.on(host, "kill", "-9", str(pid))
    return f"kill -9 of rank {rank} on {host}"


def node_crash(run: SoakedRun, rng: random.Random) -> str:
    """Cut a node's power, wait until Slurm has noticed, and start the node again."""
    host = rng.choice([host for host in run.hosts if host != CONTROLLER])
    cluster.crash(run.layout, host)

    def noticed() -> bool:
        return "down" in run.on(CONTROLLER, "sinfo", "--noheader", "-N", "-n", host, "-o", "%T").stdout

    try:
        run.wait(noticed, f"{host} is down", _DOWN_S)
    finally:
        cluster.boot(run.layout, host)
    return f"power cut of {host}"


def cancellation(run: SoakedRun, rng: random.Random) -> str:
    run.on(CONTROLLER, "scancel", run.job_id)
    return "scancel"


EVENTS = (
    Event("preemption", preemption, frozenset({"preempted"})),
    Event("no grace", preemption_without_grace, frozenset({"preempted"})),
    Event("USR2", usr2, frozenset({"preempted"})),
    Event("rank kill", rank_kill, frozenset({"crashed"})),
    Event("node crash", node_crash, frozenset({"node_failure"})),
    Event("scancel", cancellation, frozenset({"cancelled"})),
)
