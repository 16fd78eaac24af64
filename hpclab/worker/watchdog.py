"""Notice that a rank hangs: no iteration was finished for a long time."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

FIRST_ITERATION_S = 3600.0
"""For imports, the rendezvous and the first iteration, which compiles every kernel: minutes on a cold cache."""
_STDERR = 2
_MARGIN_S = 600.0


def collective_timeout_s(configured_s: float | None, hang_timeout_s: float | None) -> float:
    """Return when a collective fails by itself [s]: after the watchdog, which says more, unless it was configured."""
    if configured_s is not None:
        return configured_s
    return FIRST_ITERATION_S if hang_timeout_s is None else max(hang_timeout_s, FIRST_ITERATION_S) + _MARGIN_S


class Watchdog:
    """Calls `on_hang` from a thread when no `beat` came for a time. A context manager.

    Only time in which this process runs counts: one that Slurm suspends for another job does not hang. A main thread
    that is stuck in C code and never lets other threads run gets its stack written, but cannot be ended from here; the
    ranks that wait for it end the job.
    """

    def __init__(
        self,
        timeout_s: float | None,
        on_hang: Callable[[float], None],
        *,
        dump_when_stuck: bool = False,
        first_s: float = FIRST_ITERATION_S,
        poll_s: float = 1.0,
    ) -> None:
        """Prepare.

        Args:
            timeout_s: longest time between two beats [s]; None to never call.
            on_hang: called with how long it was silent [s]; again after as long once more, should it return.
            dump_when_stuck: also write the stacks when no other thread can run; once per process.
            first_s: longest time until the first beat [s], where that is more than `timeout_s`.
            poll_s: how often the thread looks [s].
        """
        self._timeout_s = timeout_s
        self._dump_when_stuck = dump_when_stuck
        self._first_s = first_s
        self._on_hang = on_hang
        self._poll_s = poll_s
        self._silent_s = 0.0
        self._beaten = False
        self._over = threading.Event()

    def beat(self) -> None:
        """Say that an iteration was finished."""
        self._silent_s = 0.0
        self._beaten = True

    def __enter__(self) -> Self:
        if self._timeout_s is not None:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._dump_when_stuck:
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        assert self._timeout_s is not None
        looked = time.monotonic()
        while not self._over.wait(self._poll_s):
            now = time.monotonic()
            self._silent_s += min(now - looked, 2 * self._poll_s)  # more: this process did not run meanwhile
            looked = now
            if self._dump_when_stuck:
                # Set anew at every look, it comes only when this thread can no longer look.
                faulthandler.dump_traceback_later(self._timeout_s + 2 * self._poll_s, file=_STDERR)
            limit = self._timeout_s if self._beaten else max(self._timeout_s, self._first_s)
            if self._silent_s > limit:
                self._on_hang(self._silent_s)
                self._silent_s = 0.0


def dump_stacks(file: int = _STDERR) -> None:
    """Write the stack of every thread to a file descriptor: by default standard error, a launched rank's log."""
    faulthandler.dump_traceback(file=file, all_threads=True)
