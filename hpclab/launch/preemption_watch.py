"""Notice a preemption that no signal tells of: a batch step hears CONT and TERM only when the grace time is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from hpclab.launch import queue

_POLL_S = 15.0
"""Between two questions to Slurm's controller, which answers all jobs of the cluster."""


class PreemptionWatch:
    """Calls `stop` once when Slurm says that it preempts a job. A context manager; it asks from a thread."""

    def __init__(self, job_id: str, stop: Callable[[str], None]) -> None:
        self.seen = False
        self._job_id = job_id
        self._stop = stop
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="preemption", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            job = queue.ask(self._job_id)
            if job is not None and job.preempted:
                self.seen = True
                self._stop("Slurm preempts the job")
                return
