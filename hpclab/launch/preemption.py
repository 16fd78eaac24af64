"""Notices from Slurm or a user to stop, and what becomes of the job after the ranks have stopped."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from hpclab.launch.jobs import Cause
from hpclab.launch.queue import JobInfo

NOTICES = (signal.SIGUSR2, signal.SIGTERM)


class Notices:
    """Call back within milliseconds of a signal, whatever the main thread does. A context manager.

    A Python handler runs only between bytecodes of the main thread, which can sit in a C++ collective for seconds, and
    an exception in a handler would tear the launcher apart. So the handlers do nothing, and a thread reads the signal
    numbers that the interpreter writes to a wakeup fd. Afterwards the old handlers are back, or with `restore` false
    the signals are ignored: a late notice must neither requeue a complete run nor kill a task on its way out.
    """

    def __init__(
        self,
        on_notice: Callable[[signal.Signals], None],
        signals: tuple[signal.Signals, ...] = NOTICES,
        *,
        restore: bool = True,
    ) -> None:
        self.received: list[signal.Signals] = []
        self._on_notice = on_notice
        self._signals = signals
        self._restore = restore
        self._pid = os.getpid()
        self._entered = False

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._previous: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in self._signals}
        self._previous_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._entered = True
        os.register_at_fork(after_in_child=self._in_child)
        for number in self._signals:
            signal.signal(number, _do_nothing)
        threading.Thread(target=self._watch, name="notices", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler if self._restore else signal.SIG_IGN)
        self._writer.close()  # ends the thread

    def previous_handler(self, number: signal.Signals) -> Any:
        """Return what handled a signal before: inside a submitit task, submitit's own handler."""
        return self._previous[number]

    def _watch(self) -> None:
        while numbers := self._reader.recv(64):
            for number in map(signal.Signals, numbers):
                if number in self._signals:
                    self.received.append(number)
                    self._on_notice(number)
        self._reader.close()

    def _in_child(self) -> None:
        # torchrunx forks its log server from this process: a notice to the whole step must not end or double it.
        if self._entered and os.getppid() == self._pid:
            signal.set_wakeup_fd(-1)
            for number in self._signals:
                signal.signal(number, signal.SIG_IGN)


def _do_nothing(*_: object) -> None:
    return


@dataclass(frozen=True, slots=True)
class Decision:
    """What task 0 does with a job whose ranks stopped before the run was complete."""

    action: Literal["requeue", "leave", "fail"]
    """requeue: ask Slurm for another attempt. leave: Slurm has decided already. fail: end with an error, so that an
    unfinished run is never COMPLETED."""
    cause: Cause
    reason: str
    """For the log."""


def decide(
    job: JobInfo | None, *, usr2: bool, term: bool, cancel_requested: bool, timed_out: bool, restarts: int = 0
) -> Decision:
    """Decide after an interruption.

    Args:
        job: what the controller says after the ranks have stopped; None when it cannot be asked.
        usr2: USR2 arrived, the notice of a preemption or of the walltime's end.
        term: TERM arrived: a plain preemption, or a cancellation.
        cancel_requested: `hpclab cancel` was called.
        timed_out: the walltime is nearly over.
        restarts: how often the job had been requeued when this attempt began.
    """
    preempted = job is not None and job.preempted
    cause: Cause = "timeout" if timed_out and not preempted else "preempted"
    if cancel_requested:
        return Decision("leave", "cancelled", "the run was cancelled")
    if job is None:
        return Decision("fail", cause, "Slurm cannot be asked for a requeue from this node")
    if job.state in ("COMPLETING", "CANCELLED") or job.is_finished:
        # Cancelled, or Slurm requeues it by itself. To requeue it here would bring a cancelled job back to life.
        if job.restarts > restarts:  # without a grace time, Slurm shows no PreemptTime
            return Decision("leave", cause, "Slurm requeues the job")
        return Decision("leave", "preempted" if preempted else "cancelled", f"Slurm ends the job ({job.state})")
    if job.state != "RUNNING":
        return Decision("leave", cause, f"Slurm has taken the job over ({job.state})")
    if not job.may_requeue:
        return Decision("fail", cause, "this job may not be requeued (--no-requeue)")
    if preempted or usr2 or not term:
        # Neither signal: a rank got the notice alone, or stopped by itself before the walltime.
        quiet = "the walltime is nearly over" if timed_out else "notice received"
        return Decision("requeue", cause, "preempted" if preempted else quiet)
    return Decision("fail", "cancelled", "TERM came without a preemption: somebody signalled the job")
