"""What a failing rank leaves behind, and how it leaves."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

from hpclab.errors import HpclabError
from hpclab.run_folder import RunFolder, write_atomic

_LOGGER = logging.getLogger(__name__)


class FailureReport:
    """A context manager that records any exception that leaves its block: the traceback in the log, an error file.

    A rank of a launcher then ends at once with code 1. It must not clean up first: leaving a process group can wait for
    ranks that wait for this one, and a launcher that still sees the process keeps all others waiting.
    """

    def __init__(self, run: RunFolder, attempt: int, rank: int, *, launched: bool) -> None:
        self._path = run.rank_error(attempt, rank)
        self._rank = rank
        self.launched = launched
        """Whether a launcher waits for this process, which then ends at a failure."""
        self._recorded: BaseException | None = None
        self._hung = False
        self.iteration: Callable[[], int | None] = lambda: None
        """Asked for the iteration that failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or error is self._recorded:
            return
        interrupted = isinstance(error, KeyboardInterrupt) and not self.launched
        if not interrupted:
            self._recorded = error
            self._record(error)
        if self.launched:
            leave()

    def _record(self, error: BaseException) -> None:
        details = "".join(traceback.format_exception(error))
        # In a process of its own the error itself reaches the user: the traceback is for the log.
        level = logging.ERROR if self.launched else logging.INFO
        _LOGGER.log(level, "rank %d failed\n%s", self._rank, details.rstrip())
        if self._hung:  # another rank that hung left first: what this one waited for stays on record
            return
        self._write(
            describe(error),
            cause="error",
            exit_code=error.exit_code if isinstance(error, HpclabError) else 1,
            stack=traceback.extract_tb(error.__traceback__),
            details=details,
        )

    def record_hang(self, silent_s: float) -> None:
        """Record, from another thread, that the main thread finished no iteration for `silent_s`, and where it is.

        In a process of its own there is only the log: its user sees to it.
        """
        error = f"hang: no iteration finished for {silent_s:.0f} s"
        stack = _main_stack()
        details = "".join(traceback.format_list(stack))
        _LOGGER.error("rank %d: %s; its main thread is here\n%s", self._rank, error, details.rstrip())
        if self.launched:
            self._hung = True
            self._write(error, cause="hang", exit_code=1, stack=stack, details=details)

    def record_closed(self) -> None:
        """Record, from another thread, that the launcher closes this rank: it is there, and another one failed."""
        if self._recorded is None and not self._hung:
            stack = _main_stack()
            details = "".join(traceback.format_list(stack))
            self._write("closed by the launcher", cause="closed", exit_code=143, stack=stack, details=details)

    def _write(self, error: str, *, cause: str, exit_code: int, stack: traceback.StackSummary, details: str) -> None:
        content = {
            "time": time.time(),
            "host": socket.gethostname(),
            "rank": self._rank,
            "iteration": self.iteration(),
            "cause": cause,
            "error": error,
            "exit_code": exit_code,
            "in_collective": cause == "closed" or _in_collective(stack),
            "traceback": details,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(content, indent=1) + "\n")
        except OSError as problem:  # the log has the traceback, if anything can be written at all
            _LOGGER.error("the error file could not be written: %s", problem)


def describe(error: BaseException) -> str:
    """Return an error in one line, of a library's many the first; our own messages need no class name."""
    if isinstance(error, HpclabError):
        return str(error)
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _main_stack() -> traceback.StackSummary:
    return traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])


def _in_collective(stack: traceback.StackSummary) -> bool:
    """Whether it came out of a collective: then most likely another rank failed before."""
    return any(frame.filename.endswith("hpclab/distributed/collectives.py") for frame in stack)


def leave() -> NoReturn:
    """End this process at once with code 1, without cleaning up what could wait for other ranks."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
