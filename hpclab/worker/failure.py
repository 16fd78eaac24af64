"""What a failing rank leaves behind, and how it leaves."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self

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
        self._launched = launched
        self._recorded: BaseException | None = None
        self.iteration: Callable[[], int | None] = lambda: None
        """Asked for the iteration that failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or error is self._recorded:
            return
        interrupted = isinstance(error, KeyboardInterrupt) and not self._launched
        if not interrupted:
            self._recorded = error
            self._record(error)
        if self._launched:
            _leave()

    def _record(self, error: BaseException) -> None:
        details = "".join(traceback.format_exception(error))
        # In a process of its own the error itself reaches the user: the traceback is for the log.
        level = logging.ERROR if self._launched else logging.INFO
        _LOGGER.log(level, "rank %d failed\n%s", self._rank, details.rstrip())
        content = {
            "time": time.time(),
            "host": socket.gethostname(),
            "rank": self._rank,
            "iteration": self.iteration(),
            "error": describe(error),
            "exit_code": error.exit_code if isinstance(error, HpclabError) else 1,
            "in_collective": _in_collective(error),
            "traceback": details,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(content, indent=1) + "\n")
        except OSError as problem:  # the log has the traceback, if anything can be written at all
            _LOGGER.error("the error file could not be written: %s", problem)


def describe(error: BaseException) -> str:
    """Return an error in one line; our own messages need no class name."""
    if isinstance(error, HpclabError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _in_collective(error: BaseException) -> bool:
    """Whether the error came out of a collective: then most likely another rank failed before."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.endswith("hpclab/distributed/collectives.py") for frame in frames)


def _leave() -> None:
    for handler in logging.getLogger().handlers:
        handler.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
