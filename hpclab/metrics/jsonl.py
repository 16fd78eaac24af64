"""metrics.jsonl: one line per iteration, and the ways to read it. No torch here: `hpclab status` reads it.

A line is a JSON object: `iteration` (from 0), `env_steps` (over all ranks and attempts), `time` (Unix time [s]),
`attempt`, and every other number of the iteration by its log tag, the same names as in TensorBoard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpclab.metrics.record import Record
from hpclab.run_folder import write_atomic

_TAIL_BYTES = 64 * 1024


class JsonlSink:
    """Appends whole lines to metrics.jsonl."""

    def __init__(self, path: Path, *, first_iteration: int) -> None:
        """Open `path` for the iterations from `first_iteration` on; lines of an earlier attempt for them are dropped.

        Raises:
            OSError: the file cannot be read or written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_from(path, first_iteration)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, record: Record) -> None:
        """Append one line, whole or not at all.

        Raises:
            OSError: the disk is full or gone; the file ends with the line before.
        """
        line = (json.dumps(record.as_dict()) + "\n").encode()
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError(f"short write of {len(line)} bytes to metrics.jsonl")
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def close(self) -> None:
        os.close(self._descriptor)


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Return every complete line, oldest first; none when there is no file yet."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [line for _, line in _complete_lines(data)]


def read_last(path: Path) -> dict[str, Any] | None:
    """Return the newest complete line, None when there is none. Reads only the end of the file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            data = file.read()
    except FileNotFoundError:
        return None
    last = None
    for _, last in _complete_lines(data):  # noqa: B007 (the last one is wanted)
        pass
    return last


def _complete_lines(data: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue
        try:
            content = json.loads(line)
        except ValueError:  # torn by a crash, or the middle of a line at the start of a tail
            continue
        if isinstance(content, dict) and isinstance(content.get("iteration"), int):
            yield line, content


def _drop_from(path: Path, iteration: int) -> None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    kept = b"".join(line for line, content in _complete_lines(data) if content["iteration"] < iteration)
    if kept != data:
        write_atomic(path, kept)
