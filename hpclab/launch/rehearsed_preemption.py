"""The scripted part of a rehearsal: the first node gets a preemption's notice in the middle of training."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psutil

from hpclab.config.load import dump_config
from hpclab.config.schema import RunConfig
from hpclab.launch import jobs
from hpclab.launch.handover import Handover
from hpclab.metrics.jsonl import read_last
from hpclab.run_folder import RunFolder, write_atomic

ENDLESS = 1_000_000
"""Iterations of a run that waits for its preemption."""
_NOTICE_AFTER = 2
_ITERATIONS_AFTER = 3
_POLL_S = 0.02
_STOP_WAIT_S = 120.0


class RehearsedPreemption:
    """A context manager around an endless run: interrupts it once, then lets it end three iterations later.

    The notice goes out when metrics.jsonl shows the second iteration. Only when the attempt has ended is the number of
    iterations settled, while the next attempt is still starting: however fast a machine trains, the notice is never
    late.
    """

    def __init__(self, run: RunFolder, config: RunConfig) -> None:
        self._run = run
        self._config = config
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="preemption", daemon=True)
        self.noticed: int | None = None
        """The last iteration reported when the notice was sent; None when it never was."""
        self.total: int | None = None
        """How many iterations the run has; None when its first attempt did not end as it should."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        if not self._wait(lambda: self._reported() >= _NOTICE_AFTER - 1):
            return
        leader = last_handover(self._run)
        text = leader.get("leader") if leader is not None else None
        if text is None:
            _kill_children()
            return
        self.noticed = self._reported()
        os.kill(json.loads(text)["pid"], signal.SIGUSR2)
        if not self._wait(lambda: jobs.read(self._run)[0].cause is not None, timeout_s=_STOP_WAIT_S):
            if not self._over.is_set():
                _kill_children()  # a job that does not stop would train for ever
            return
        last = jobs.read(self._run)[0].last_iteration
        if last is not None:
            self.total = last + 1 + _ITERATIONS_AFTER
            write_atomic(self._run.config, dump_config(with_iterations(self._config, self.total)))

    def _reported(self) -> int:
        last = read_last(self._run.metrics / "metrics.jsonl")
        return -1 if last is None else int(last["iteration"])

    def _wait(self, happened: Callable[[], bool], timeout_s: float = float("inf")) -> bool:
        end = time.monotonic() + timeout_s
        while not happened():
            if time.monotonic() > end or self._over.wait(_POLL_S):
                return False
        return True


def with_iterations(config: RunConfig, number: int) -> RunConfig:
    return config.model_copy(update={"run": config.run.model_copy(update={"max_iterations": number})})


def last_handover(run: RunFolder) -> Handover | None:
    """Return the folder of the newest attempt of the run's job."""
    folders = [path for path in (run.submitit / "handover").glob("*") if path.is_dir()]
    return Handover(max(folders, key=lambda path: path.stat().st_mtime)) if folders else None


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
