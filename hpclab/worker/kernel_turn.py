"""Compile a node's GPU kernels once: its local rank 0 first, then its other ranks, which find them in the cache.

Otherwise every rank compiles the same on a cold cache, for minutes. No collective may be pending between entering and
leaving a turn: a rank that waits here would keep the others waiting there, and be waited for.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.1
_SAY_EVERY_S = 15.0
_READY = b"ready\n"


class KernelTurn:
    """This rank's turn to compile. A context manager.

    A file on the node says how far local rank 0 is: locked while it compiles, which ends with the process however that
    ends, and with a word in it when all is compiled.
    """

    def __init__(
        self, path: Path | None, *, local_rank: int, mark: Path | None = None, say_every_s: float = _SAY_EVERY_S
    ) -> None:
        """Prepare.

        Args:
            path: the file, of its own for each attempt and node; None where nothing is compiled, or by one rank only.
            local_rank: of this rank.
            mark: file that says that an earlier attempt has compiled the same, so that nobody waits; see `cache_mark`.
            say_every_s: how often a rank that waits says so in its log [s].
        """
        self._path = path
        self._first = local_rank == 0
        self._mark = mark
        self._say_every_s = say_every_s
        self._lock: int | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        try:
            if self._path is not None and self._first:
                self._take(self._path)
            elif self._path is not None:
                self._wait(self._path)
        except OSError as error:
            _LOGGER.warning("%s: %s; this rank compiles its kernels without waiting for others", self._path, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if error is None:
            _LOGGER.info("GPU kernels are ready after %.1f s%s", self._passed_s(), _in_cache())
            if self._mark is not None:
                with suppress(OSError):  # then the next attempt waits once more
                    self._mark.touch()
        self._hand_on(_READY if error is None else b"")

    def _take(self, path: Path) -> None:
        # Locked before it gets its name: nobody can find it unlocked without the word in it, but for a dead owner.
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        lock = os.open(mine, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine.rename(path)
        self._lock = lock
        if self._mark is not None and self._mark.exists():
            self._hand_on(_READY)
            return
        _LOGGER.info("compiling GPU kernels, or loading them%s; this node's other ranks wait", _in_cache())

    def _hand_on(self, word: bytes) -> None:
        assert self._lock is not None
        os.write(self._lock, word)
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # closing alone leaves it to a child that was forked meanwhile
        os.close(self._lock)
        self._lock = None

    def _wait(self, path: Path) -> None:
        said = self._began
        while (word := _read_unlocked(path)) is None:
            if time.monotonic() - said >= self._say_every_s:
                said = time.monotonic()
                _LOGGER.info("waiting for local rank 0 to compile: %.0f s%s", self._passed_s(), _in_cache())
            time.sleep(_POLL_S)
        if word == _READY:
            _LOGGER.info("local rank 0 has compiled the GPU kernels; waited %.1f s", self._passed_s())
        else:
            _LOGGER.warning("local rank 0 is gone before the GPU kernels were ready; compiling them here")

    def _passed_s(self) -> float:
        return time.monotonic() - self._began


def cache_mark(settings: bytes, device_name: str) -> Path | None:
    """Return the file in WARP_CACHE_PATH that says that all kernels of a run are there; None without that folder.

    Args:
        settings: the run's config, on which kernels depend.
        device_name: of the GPU that they are compiled for.
    """
    folder = os.environ.get("WARP_CACHE_PATH")
    if folder is None:
        return None
    versions = " ".join(version(name) for name in ("warp-lang", "mujoco-warp", "mujoco"))
    digest = hashlib.sha256(settings + f"\0{versions}\0{device_name}".encode()).hexdigest()[:16]
    return Path(folder) / f"hpclab-compiled-{digest}"


def _read_unlocked(path: Path) -> bytes | None:
    """Return what a file holds; None while it is not there, or locked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.read(file, len(_READY))
    except BlockingIOError:
        return None
    finally:
        os.close(file)


def _in_cache() -> str:
    folder = os.environ.get("WARP_CACHE_PATH")
    if folder is None:
        return ""
    modules = sum(1 for _ in Path(folder).glob("*/wp_*"))  # in a folder for warp's version
    return f", {modules} modules in {folder}"
