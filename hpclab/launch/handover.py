"""How the tasks of one job talk before and after its ranks run: complete files in a folder that all nodes share.

    <run>/submitit/handover/<job id>.<restart>/  attempt  <node>.{command,kill,agent,ended,notice}  outcome  left

Keyed by job and restart count, so nothing of an earlier attempt is ever read. Files are polled: inotify does not see
what other nodes write over NFS. Each look lists the folder anew, because NFS clients cache that a name is absent.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from hpclab.launch.private import private_folder
from hpclab.run_folder import RunFolder, write_atomic

POLL_S = 0.1
Kind = Literal["completed", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class Handover:
    """The folder of one attempt of one job. Its files may hold secrets of the environment: only the user reads them."""

    folder: Path

    @classmethod
    def of(cls, run: RunFolder, job_id: str, restart: int) -> Handover:
        handover = cls(cls.path_of(run, job_id, restart))
        for folder in (run.submitit, handover.folder.parent, handover.folder):
            private_folder(folder)
        return handover

    @staticmethod
    def path_of(run: RunFolder, job_id: str, restart: int) -> Path:
        return run.submitit / "handover" / f"{job_id}.{restart}"

    def put(self, name: str, content: str = "") -> None:
        write_atomic(self.folder / name, content, private=True)

    def has(self, name: str) -> bool:
        return name in os.listdir(self.folder)  # noqa: PTH208 - names only, no stat of each

    def get(self, name: str) -> str | None:
        return (self.folder / name).read_text() if self.has(name) else None

    def wait_for(self, *names: str, timeout_s: float, alive: Callable[[], bool] = lambda: True) -> str | None:
        """Return the first of `names` that is there; None after the time is over or `alive` says no."""
        end = time.monotonic() + timeout_s
        while True:
            present = set(os.listdir(self.folder))  # noqa: PTH208
            found = next((name for name in names if name in present), None)
            if found is not None or time.monotonic() > end or not alive():
                return found
            time.sleep(POLL_S)

    def put_outcome(self, kind: Kind) -> None:
        self.put("outcome", kind)

    def put_process(self, name: str, pid: int) -> None:
        """Write who a process is, so that others can see whether it lives."""
        self.put(name, json.dumps({"host": socket.gethostname(), "pid": pid, "started": _started(pid)}))

    def processes(self) -> list[dict[str, Any]]:
        """Return what `put_process` wrote for the nodes' agents."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.agent"))]


def _started(pid: int) -> float:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0.0
