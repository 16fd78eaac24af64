"""Print what is appended to a log, as it is written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO, TextIO

_POLL_S = 0.2
# Files are polled: inotify does not see what another node writes to a shared folder.


class Following:
    """Copy a file's new text to a stream from a thread, also when it appears only later. A context manager."""

    def __init__(self, path: Path, out: TextIO) -> None:
        self._path = path
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
        file: IO[str] | None = None
        while True:
            last = self._over.wait(_POLL_S)
            if file is None and self._path.exists():
                file = self._path.open(encoding="utf-8", errors="replace")
            if file is not None and (text := file.read()):
                self._out.write(text)
                self._out.flush()
            if last:
                break
        if file is not None:
            file.close()
