"""Signals and the stop file become one flag; nothing is torn down by them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpclab.worker.stop import StopRequest


def wait_for(condition, timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_notice_sets_the_flag_and_handlers_are_put_back(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    with StopRequest(tmp_path / "stop", rank=0, launched=False) as stop:
        assert not stop.requested()
        os.kill(os.getpid(), number)
        assert wait_for(stop.requested)
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_hangup_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopRequest(tmp_path / "stop", rank=0, launched=False):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

    with StopRequest(tmp_path / "stop", rank=0, launched=False) as stop:
        interrupt()
        assert wait_for(stop.requested)
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_the_stop_file_is_rank_0s_to_look_at(tmp_path: Path) -> None:
    leader = StopRequest(tmp_path / "stop", rank=0, launched=False)
    other = StopRequest(tmp_path / "stop", rank=1, launched=False)
    assert not leader.requested()
    (tmp_path / "stop").touch()
    assert leader.requested()
    assert not other.requested()
    other.request()
    assert other.requested()


def test_a_forked_helper_has_default_signals(tmp_path: Path) -> None:
    with StopRequest(tmp_path / "stop", rank=0, launched=False) as stop:
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGTERM
        time.sleep(0.1)
        assert not stop.requested(), "the child wrote into its parent's wakeup fd"


RANK = """
import atexit, signal, sys, time
from pathlib import Path
atexit.register(lambda: print(signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, flush=True))
from hpclab.worker.stop import StopRequest
with StopRequest(Path(sys.argv[1]), rank=0, launched=True, close_wait_s=float(sys.argv[4])) as stop:
    print("ready", flush=True)
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end and not stop.requested():
        time.sleep(0.05)
print("left", stop.requested(), flush=True)
time.sleep(float(sys.argv[3]))
"""


def start(stop_file: Path, in_loop_s: float, after_s: float = 0.0, close_wait_s: float = 0.3) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", RANK, str(stop_file), str(in_loop_s), str(after_s), str(close_wait_s)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_launched_rank_leaves_with_143_when_its_agent_closes_it(tmp_path: Path) -> None:
    process = start(tmp_path / "stop", 30)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "left" not in output


def test_a_launched_rank_that_waits_for_the_others_can_still_be_closed(tmp_path: Path) -> None:
    process = start(tmp_path / "stop", 0, after_s=30)
    assert process.stdout is not None
    assert process.stdout.readline() == "left False\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_term_with_a_stop_file_is_a_notice_and_ignored_at_the_end(tmp_path: Path) -> None:
    stop_file = tmp_path / "stop"
    process = start(stop_file, 30, close_wait_s=20)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    stop_file.touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == "left True\nTrue\n"


def test_a_launched_rank_leaves_ctrl_c_to_its_launcher(tmp_path: Path) -> None:
    process = start(tmp_path / "stop", 0.5)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.startswith("left False")
