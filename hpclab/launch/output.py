"""Standard output and error that training does without where nobody takes them any more."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


@contextlib.contextmanager
def dispensable_output() -> Iterator[None]:
    """Drop what cannot be printed during a block: a terminal is closed, `| head` has read enough, a disk is full.

    All of it is in the logs too. What is still held back at the end is dropped as well, or Python would report it as a
    failure of the run.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (None if stream is None else _wrapped(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for stream in streams:
            if stream is not None:
                _empty(stream)


def _wrapped(stream: TextIO) -> TextIO:
    return cast("TextIO", _Dispensable(stream))


class _Dispensable:
    """A stream whose writes never fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _empty(stream: TextIO) -> None:
    """Flush a stream, into nothing where its file takes nothing."""
    try:
        stream.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        stream.flush()
