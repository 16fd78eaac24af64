"""Whether the kernel kills processes of this node's task for lack of memory: they cannot say so themselves."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from pathlib import Path

from hpclab.launch.handover import POLL_S, Handover
from hpclab.launch.watching import watching
from hpclab.run_folder import RunFolder, write_atomic

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def num_kills(own: Path = _OWN, cgroups: Path = _CGROUPS) -> int | None:
    """Return how many processes of this one's cgroup the kernel has ever killed for lack of memory.

    It does not matter whose limit was reached: the task's, the job's or the node's. None where the kernel does not say.
    """
    try:
        paths = {kind: path for _, kind, path in (line.split(":", 2) for line in own.read_text().splitlines())}
        if "memory" in paths:  # version 1 of cgroups, also beside version 2
            counter = cgroups / "memory" / paths["memory"].lstrip("/") / "memory.oom_control"
        else:
            counter = cgroups / paths.get("", "/").lstrip("/") / "memory.events"
        found = _COUNT.search(counter.read_text())
    except (OSError, ValueError):
        return None
    return int(found[1]) if found else None


def watched(run: RunFolder, handover: Handover, *, host: str) -> AbstractContextManager[None]:
    """Note in the attempt's logs, while a block runs, that this node's task has lost a process for lack of memory.

    Args:
        run: of this job.
        handover: says which attempt it is.
        host: this node, by its name in the job.
    """
    before = num_kills()

    def look() -> bool:
        if before is None:
            return True
        attempt = handover.get("attempt") if (num_kills() or 0) > before else None
        if attempt is not None:
            write_atomic(run.out_of_memory(int(attempt), host), time.strftime("%Y-%m-%d %H:%M:%S\n"))
        return attempt is not None

    return watching(look, every_s=POLL_S, name="out of memory")


def hosts_without_memory(run: RunFolder, attempt: int) -> set[str]:
    """Return the hosts on which the kernel killed processes of an attempt for lack of memory."""
    pattern = run.out_of_memory(attempt, "*")
    return {path.name.removeprefix(pattern.name[:-1]) for path in pattern.parent.glob(pattern.name)}
