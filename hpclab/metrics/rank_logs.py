"""The log of one rank: Python logging, prints, warnings and whatever C libraries write, in one file.

The file descriptors themselves point to the file, not to a pipe with a reader behind it: what a crashing library writes
last is then still there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"
_DATE = "%Y-%m-%d %H:%M:%S"


@contextlib.contextmanager
def capture_all(path: Path) -> Iterator[None]:
    """Send everything this process writes to `path` from now on: file descriptors 1 and 2, prints, Python logging.

    Handlers that were on the root logger are put aside. Everything is restored on exit; earlier attempts' lines stay.

    Raises:
        OSError: the log cannot be opened.
    """
    log = _open(path)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = (os.dup(1), os.dup(2))
    streams = (sys.stdout, sys.stderr)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    handler = _handler(_RawWriter(log))
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = _StampedStream(log)
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        faulthandler.enable(file=log)
        yield
    finally:
        faulthandler.disable()
        sys.stdout.flush()
        root.handlers = handlers
        root.setLevel(level)
        sys.stdout, sys.stderr = streams
        for number, original in enumerate(kept, start=1):
            os.dup2(original, number)
            os.close(original)
        os.close(log)


@contextlib.contextmanager
def tee_logging(path: Path) -> Iterator[None]:
    """Copy the package's Python logging to `path`; its warnings go to standard error as well.

    Raises:
        OSError: the log cannot be opened.
    """
    log = _open(path)
    logger = logging.getLogger("hpclab")
    handler = _handler(_RawWriter(log))
    warnings = _CurrentStderrHandler(logging.WARNING)
    level = logger.level
    logger.addHandler(handler)
    logger.addHandler(warnings)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.removeHandler(warnings)
        logger.setLevel(level)
        os.close(log)


class _CurrentStderrHandler(logging.Handler):
    """Writes to what sys.stderr is at that moment: a live view replaces it, to keep messages above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"hpclab: {self.format(record)}", file=sys.stderr)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _handler(stream: _RawWriter) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
    return handler


class _RawWriter(io.TextIOBase):
    """Write text to a file descriptor at once. A log that cannot be written (a full disk) must not end the training."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, text.encode(errors="replace"))
        return len(text)


class _StampedStream(_RawWriter):
    """Stands in for sys.stdout and sys.stderr: puts the time before each line. A partial line waits for its end."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._partial = ""

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            super().write(f"{_stamp()} {line}\n")
        return len(text)

    def flush(self) -> None:
        if self._partial:
            partial, self._partial = self._partial, ""
            super().write(f"{_stamp()} {partial}\n")


def _stamp() -> str:
    now = time.time()
    return f"{time.strftime(_DATE, time.localtime(now))}.{int(now % 1 * 1000):03d}"
