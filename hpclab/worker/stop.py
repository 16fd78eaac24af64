"""Turn signals and the stop file into one flag that the training loop reads once an iteration.

A handler must not act: the main thread may sit in a C++ collective for seconds, and an exception there would tear the
ranks apart. So Python's C-level handler writes the signal's number to a wakeup fd and a thread reads it at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_LOGGER = logging.getLogger(__name__)
_NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
_EXIT_CLOSED = 128 + signal.SIGTERM

_owner: int | None = None
"""Process id whose signals are handled here; a forked child differs and gets the defaults back."""
_fork_hooks = False
_mask_before_fork: set[int | signal.Signals] = set()


class StopRequest:
    """The request to save and stop, as this rank sees it. A context manager around the training loop.

    USR1 and USR2 ask for a stop. A rank of a launcher takes TERM as a notice too, but only if the stop file appears
    within `close_wait_s`: without it, the launcher's agent is closing this rank, which then leaves at once with 143.
    INT is left to the launcher. In a process of its own TERM is a notice, and so are HUP (its terminal was closed),
    unless nohup had it ignored, and the first INT (Ctrl-C); the second INT raises KeyboardInterrupt.
    """

    def __init__(
        self,
        stop_file: Path,
        *,
        rank: int,
        launched: bool,
        close_wait_s: float = 2.0,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._stop_file = stop_file
        self._rank = rank
        self._launched = launched
        self._close_wait_s = close_wait_s
        self._on_closed = on_closed
        self._requested = threading.Event()
        self._interrupted = False
        self._previous: dict[int, Any] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def requested(self) -> bool:
        """Return whether this rank knows of a request. Ranks differ: reduce the answer before acting on it."""
        return self._requested.is_set() or (self._rank == 0 and self._stop_file.exists())

    def request(self) -> None:
        """Ask for a stop from inside this process."""
        self._requested.set()

    def __enter__(self) -> Self:
        global _owner
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._sockets = (reader, writer)
        _register_fork_hooks()
        _owner = os.getpid()
        hangup = () if self._launched else hangup_signals()
        for number in (*_NOTICES, signal.SIGTERM, signal.SIGINT, *hangup):
            self._previous[number] = signal.signal(number, self._handle)
        self._previous[-1] = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), name="stop-request", daemon=True).start()
        if self._launched:
            atexit.register(_ignore_signals)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A launched rank still waits for the others inside the launcher: it stays watched until the interpreter ends.
        if self._launched or self._sockets is None:
            return
        global _owner
        signal.set_wakeup_fd(self._previous.pop(-1))
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        _owner = None
        _, writer = self._sockets
        writer.close()  # ends the thread
        self._sockets = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or self._launched:
            return
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def _watch(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                for number in numbers:
                    self._notice(signal.Signals(number))

    def _notice(self, number: signal.Signals) -> None:
        if number in _NOTICES or (not self._launched and number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
            _LOGGER.info("%s received: saving and stopping after this iteration", number.name)
            self._requested.set()
        elif number == signal.SIGTERM:
            deadline = time.monotonic() + self._close_wait_s
            while not self._stop_file.exists():
                if time.monotonic() > deadline:
                    _LOGGER.error("SIGTERM received and nobody asks for a stop: the launcher is closing this rank")
                    self._on_closed()
                    _leave_closed()
                time.sleep(0.05)
            _LOGGER.info("SIGTERM received; the stop is coordinated through %s", self._stop_file.name)


def hangup_signals() -> tuple[signal.Signals, ...]:
    """Return HUP, or nothing where nohup or the like has it ignored."""
    return () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)


def _leave_closed() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(_EXIT_CLOSED)


def _ignore_signals() -> None:
    """Ignore notices while the interpreter ends: it puts the defaults back, and a late notice would then kill."""
    if os.getpid() == _owner:
        signal.set_wakeup_fd(-1)
        for number in (*_NOTICES, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _register_fork_hooks() -> None:
    global _fork_hooks
    if not _fork_hooks:
        os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_reset_in_child)
        _fork_hooks = True


def _hold_signals() -> None:
    """Hold signals back during a fork: one for the child must find the child's handlers, not its parent's."""
    global _mask_before_fork
    _mask_before_fork = signal.pthread_sigmask(
        signal.SIG_BLOCK, (*_NOTICES, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    )


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask_before_fork)


def _reset_in_child() -> None:
    """Give a forked helper the default signals: it must end on TERM, and not write into its parent's wakeup fd."""
    global _owner
    if _owner is not None:
        _owner = None
        signal.set_wakeup_fd(-1)
        for number in (*_NOTICES, signal.SIGTERM, *hangup_signals()):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _release_signals()
