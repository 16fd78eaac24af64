"""Find and end every process of a cluster.

Every process is started with the cluster's mark in its environment, and children inherit it. So no list of process
ids has to be kept: it could be stale, and an interrupted `up` could not have written it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_lab.requirements import SEARCH_PATH
from slurm_lab.settings import ClusterError, Layout

STATE_MARK = "HPCLAB_CLUSTER_STATE"
HOST_MARK = "HPCLAB_CLUSTER_HOST"
SWITCH = "switch"
"""HOST_MARK of the process that holds the network between the hosts."""
DROPPED_PREFIXES = ("SLURM", "SBATCH", "SRUN", "SALLOC", "SQUEUE", "SINFO", "SACCT", "SUBMITIT")
"""Variables of a cluster around this one, which would steer the commands inside."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a cluster, by its id on this machine."""

    pid: int
    host: str
    is_init: bool
    """It is process 1 of its host: with it, all of the host ends."""


def environment(layout: Layout, host: str, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process on a host: the caller's, without that of another cluster, with this one's mark."""
    kept = {k: v for k, v in (os.environ if base is None else base).items() if not k.startswith(DROPPED_PREFIXES)}
    return kept | {"PATH": SEARCH_PATH, STATE_MARK: str(layout.state), HOST_MARK: host}


def members(layout: Layout) -> list[Member]:
    """Every process of the cluster, on every host."""
    mark = os.fsencode(f"{STATE_MARK}={layout.state}")
    host_mark = os.fsencode(f"{HOST_MARK}=")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            if mark not in variables:
                continue
            status = (entry / "status").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has just ended, or it hides from root: neither is ours
        host = next((os.fsdecode(v[len(host_mark) :]) for v in variables if v.startswith(host_mark)), "")
        ids = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        found.append(Member(int(entry.name), host, is_init=len(ids) == 2 and ids[1] == "1"))
    return found


def host_inits(layout: Layout) -> dict[str, int]:
    """Host -> process id of its process 1, for the hosts that are running."""
    return {member.host: member.pid for member in members(layout) if member.is_init}


def end_all(layout: Layout) -> bool:
    """Kill every process of the cluster and wait until all are gone. Returns whether there was any.

    Raises:
        ClusterError: a process does not end.
    """
    found = members(layout)
    any_found = bool(found)
    deadline = time.monotonic() + 30
    while found:
        # Hosts first: a job's processes then end with their host instead of being restarted or logged about.
        kill_and_wait((member.pid for member in found if member.is_init), deadline)
        kill_and_wait((member.pid for member in found if not member.is_init), deadline)
        found = members(layout)
    return any_found


def kill_and_wait(pids: Iterable[int], deadline: float) -> None:
    """Kill processes and wait until they have ended (time.monotonic deadline).

    Raises:
        ClusterError: one is still there at the deadline.
    """
    descriptors: dict[int, int] = {}
    try:
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            descriptors[descriptor] = pid
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        for descriptor, pid in descriptors.items():
            timeout = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], timeout)[0]:
                raise ClusterError(
                    f"process {pid} does not end after KILL; look at /proc/{pid}/stack, then repeat: down"
                )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
