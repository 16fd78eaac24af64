"""What Slurm says about jobs. Every question may go unanswered: the commands can be absent, slow, or refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

FINISHED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)
_OWN_VARIABLES = ("SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_", "SLURM_TIME_FORMAT")
"""What users set for their own eyes: it hides jobs, asks questions, and changes what is printed or cancelled."""
_PAUSES_S = (1.0, 3.0, 6.0, 10.0, 10.0, 10.0, 10.0, 10.0)
"""A controller that restarts is away for half a minute or so."""
_FIELD = re.compile(r"(?:^|\s)(JobState|Reason|PreemptTime|StartTime|NodeList|Restarts|Requeue)=(\S+)")


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job as Slurm sees it now."""

    state: str
    """RUNNING, PENDING, COMPLETING, CANCELLED, ..."""
    reason: str = ""
    """Why it waits, in Slurm's word; empty when it does not."""
    start: str = ""
    """Expected or actual start, as Slurm prints it; empty when unknown."""
    preempted: bool = False
    """A preemption was announced for it."""
    may_requeue: bool = True
    restarts: int = 0
    """How often it was requeued; Slurm counts a requeue before the tasks of the attempt have ended."""

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED


def run_command(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a Slurm client command as it is without a user's settings for it, in the C locale; it can ask nothing.

    Raises:
        OSError: it is absent.
        subprocess.TimeoutExpired: it took too long.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    return subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s,
        env=variables | {"LC_ALL": "C"},
    )  # fmt: skip


def slurm_command(*arguments: str, timeout_s: float = 60.0) -> str | None:
    """Run a Slurm client command and return what it prints; None when it is absent, fails, or takes too long."""
    if shutil.which(arguments[0]) is None:
        return None
    try:
        done = run_command(*arguments, timeout_s=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def ask(job_id: str, *, timeout_s: float = 60.0) -> JobInfo | None:
    """Return what the controller says of a job (`11`, or `11_1` for an array member); None when it does not answer."""
    text = slurm_command("scontrol", "show", "job", "-o", job_id, timeout_s=timeout_s)
    return parse_scontrol(text) if text else None


def ask_again(job_id: str, *, patience_s: float) -> JobInfo | None:
    """Return what the controller says of a job, as `ask`, also where it is busy or restarts: up to about a minute."""
    end = time.monotonic() + patience_s
    for pause_s in _PAUSES_S:
        info = ask(job_id)
        left_s = end - time.monotonic()
        if info is not None or left_s <= 0 or shutil.which("scontrol") is None:
            return info
        time.sleep(min(pause_s, left_s))
    return ask(job_id)


def parse_scontrol(text: str) -> JobInfo | None:
    """Read `scontrol show job -o`: its first job, below whatever a site's wrapper prints before it."""
    line = next((line for line in text.splitlines() if "JobState=" in line), "")
    fields = dict(_FIELD.findall(line))
    if "JobState" not in fields:
        return None
    start = fields.get("StartTime", "")
    reason = fields.get("Reason", "")
    return JobInfo(
        state=fields["JobState"],
        reason="" if reason == "None" else reason,
        start="" if start in ("Unknown", "N/A") else start,
        preempted=fields.get("PreemptTime", "None") not in ("None", "Unknown", "N/A"),
        may_requeue=fields.get("Requeue", "1") != "0",
        restarts=int(fields.get("Restarts", "0")),
    )


def down_nodes(hosts: Sequence[str], *, timeout_s: float = 5.0) -> list[str]:
    """Return those of a job's nodes that Slurm has given up; none where it cannot be asked."""
    listed = slurm_command("sinfo", "-h", "-N", "-n", ",".join(hosts), "-o", "%N %T", timeout_s=timeout_s) or ""
    states = (line.split() for line in listed.splitlines())
    named = (words for words in states if len(words) == 2)  # not what a site's wrapper prints before
    return sorted({name for name, state in named if state.startswith(("down", "fail")) or state.endswith("*")})


def is_queued(job_id: str, *, timeout_s: float = 10.0) -> bool | None:
    """Say whether a job still waits or runs; None when Slurm cannot be asked."""
    info = ask(job_id, timeout_s=timeout_s)
    if info is not None:
        return not info.is_finished
    # scontrol fails alike for an unknown job and for a controller that is down; squeue tells the two apart.
    # Hidden partitions too, and a line for each waiting member of an array.
    listed = slurm_command("squeue", "-h", "-a", "-r", "-o", "%A %F_%K", timeout_s=timeout_s)
    return None if listed is None else job_id in listed.split()
