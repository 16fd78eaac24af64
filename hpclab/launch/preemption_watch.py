"""Notice a preemption that no signal tells of: a batch step hears CONT and TERM only when the grace time is over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from hpclab.launch import queue
from hpclab.launch.watching import watching

_POLL_S = 15.0
"""Between two questions to Slurm's controller, which answers all jobs of the cluster."""


class PreemptionWatch:
    """Calls `stop` once when Slurm says that it preempts a job."""

    def __init__(self, job_id: str, stop: Callable[[str], None]) -> None:
        self.seen = False
        self._job_id = job_id
        self._stop = stop

    def running(self) -> AbstractContextManager[None]:
        """Look while a block runs."""
        return watching(self._look, every_s=_POLL_S, name="preemption")

    def _look(self) -> bool:
        job = queue.ask(self._job_id)
        if job is not None and job.preempted:
            self.seen = True
            self._stop("Slurm preempts the job")
        return self.seen
