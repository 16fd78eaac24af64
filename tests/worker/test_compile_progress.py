"""Compilation says how far it is while it goes on, and nothing when there was nothing to compile."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpclab.worker.compile_progress import CompileProgress


class Lines(logging.Handler):
    """Keeps messages, and says when a number of them is there."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.enough = threading.Event()
        self._wanted = wanted

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        if len(self.messages) >= self._wanted:
            self.enough.set()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of warp's with one module in it, compiled long ago."""
    (tmp_path / "wp_old").mkdir()
    (tmp_path / "wp_old" / "kernel.cubin").touch()
    os.utime(tmp_path / "wp_old", (1e9, 1e9))
    monkeypatch.setitem(sys.modules, "warp", SimpleNamespace(config=SimpleNamespace(kernel_cache_dir=str(tmp_path))))
    return tmp_path


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines(wanted=2)
    logger = logging.getLogger("hpclab.worker.compile_progress")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_modules_are_counted_while_they_are_compiled(cache: Path, lines: Lines) -> None:
    with CompileProgress(every_s=0.01):
        (cache / "wp_new").mkdir()
        assert lines.enough.wait(20.0)
    assert "compiling simulation kernels: 1 modules so far" in lines.messages[1]
    assert lines.messages[-1].startswith("compiled 1 kernel modules in ")
    assert str(cache) in lines.messages[-1]


def test_a_warm_cache_is_not_worth_a_line(cache: Path, lines: Lines) -> None:
    with CompileProgress(every_s=100.0):
        pass
    assert lines.messages == []
