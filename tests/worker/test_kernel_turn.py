"""Local rank 0 compiles first; the others wait for it, but never for a dead one."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpclab.worker.kernel_turn import KernelTurn, cache_mark

TAKE_AND_HOLD = """
import sys
from pathlib import Path
from hpclab.worker.kernel_turn import KernelTurn
with KernelTurn(Path(sys.argv[1]), local_rank=0):
    print("compiling", flush=True)
    sys.stdin.read()
"""


def enter(path: Path, entered: threading.Event) -> threading.Thread:
    def wait() -> None:
        with KernelTurn(path, local_rank=1, say_every_s=0.0):
            entered.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_others_wait_until_local_rank_0_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "cache" / "1.19.0" / "wp_module").mkdir(parents=True)
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path / "cache"))
    entered = threading.Event()
    other = enter(tmp_path / "turn", entered)  # before local rank 0 has come
    turn = KernelTurn(tmp_path / "turn", local_rank=0)
    with turn:
        while "waiting for local rank 0 to compile" not in caplog.text:
            assert not entered.wait(0.01)
        assert not entered.is_set()
    other.join(10.0)
    assert entered.is_set()
    assert "1 modules in" in caplog.text
    assert "local rank 0 has compiled the GPU kernels" in caplog.text


def test_a_dead_owner_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, entered = tmp_path / "turn", threading.Event()
    program = [sys.executable, "-c", TAKE_AND_HOLD, str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"compiling\n"
        other = enter(path, entered)
        assert not entered.wait(0.3)
        owner.kill()
    other.join(10.0)
    assert entered.is_set()
    assert "gone before the GPU kernels were ready" in caplog.text


def test_a_local_rank_0_that_fails_lets_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="no compiler"), KernelTurn(tmp_path / "turn", local_rank=0):
        raise ValueError("no compiler")
    with KernelTurn(tmp_path / "turn", local_rank=1):
        pass
    assert "gone before the GPU kernels were ready" in caplog.text


def test_what_an_earlier_attempt_compiled_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path))
    mark = cache_mark(b"task: a", "H200")
    assert mark not in (cache_mark(b"task: b", "H200"), cache_mark(b"task: a", "H100"))
    with KernelTurn(tmp_path / "first", local_rank=0, mark=mark):
        pass
    entered = threading.Event()
    with KernelTurn(tmp_path / "second", local_rank=0, mark=mark):
        other = enter(tmp_path / "second", entered)
        assert entered.wait(10.0), "while local rank 0 still loads"
    other.join()


def test_where_nothing_is_compiled_nobody_waits() -> None:
    with KernelTurn(None, local_rank=1):
        pass


def test_a_folder_that_is_gone_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with KernelTurn(tmp_path / "gone" / "turn", local_rank=0):
        pass
    assert "compiles its kernels without waiting" in caplog.text
