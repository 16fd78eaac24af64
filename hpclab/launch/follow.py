"""Print what is appended to logs, as it is written.

Files are polled: inotify does not see what another node writes to a shared folder.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TextIO

_POLL_S = 0.2


class Tail:
    """Reads the lines that are appended to a file, also when it appears only later. It keeps no file open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def lines(self, *, partial: bool = False) -> list[str]:
        """Return the lines since the last call, without their ends; `partial`: with an unfinished last one too."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except FileNotFoundError:
            return []
        self._position += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        if partial and self._rest:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", errors="replace") for line in whole]


class Following:
    """Copy a log's new lines to a stream from a thread. A context manager: at its end the rest is copied too."""

    def __init__(self, path: Path, out: TextIO) -> None:
        self._tail = Tail(path)
        self._out = out
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="follow", daemon=True)

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _copy(self) -> None:
        last = False
        while not last:
            last = self._over.wait(_POLL_S)
            for line in self._tail.lines(partial=last):
                print(line, file=self._out)
            self._out.flush()


def interruptible_wait(seconds: float = _POLL_S) -> bool:
    """Wait; return False when Ctrl-C ended the wait."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True
