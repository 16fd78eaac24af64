"""Say in the log how the compilation of simulation kernels goes on: with a cold cache it looks like a hang."""

from __future__ import annotations

import logging
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_LOGGER = logging.getLogger(__name__)
_CLOCK_SLACK_S = 1.0
"""Times of files lag behind the clock."""


class CompileProgress:
    """A context manager around what compiles: a line every few seconds, and one at the end where anything compiled."""

    def __init__(self, *, every_s: float = 10.0) -> None:
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="compile progress", daemon=True)
        self._began = 0.0
        self._began_unix = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._began_unix = time.time() - _CLOCK_SLACK_S
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if error is None and (modules := self._compiled()):
            _LOGGER.info("compiled %d kernel modules in %.1f s; they are kept in %s", modules, self._s(), _cache())

    def _tell(self) -> None:
        while not self._done.wait(self._every_s):
            _LOGGER.info("compiling simulation kernels: %d modules so far, in %.0f s", self._compiled(), self._s())

    def _s(self) -> float:
        return time.monotonic() - self._began

    def _compiled(self) -> int:
        """Count the modules that came into warp's cache meanwhile, another process's among them."""
        folder = _cache()
        if folder is None or not folder.is_dir():
            return 0
        return sum(1 for path in folder.iterdir() if path.name.startswith("wp_") and _changed(path) >= self._began_unix)


def _cache() -> Path | None:
    """Return warp's cache, which is known once warp has started."""
    config = getattr(sys.modules.get("warp"), "config", None)
    folder = getattr(config, "kernel_cache_dir", None)
    return Path(folder) if folder else None


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # a build's temporary folder, renamed since
        return 0.0
