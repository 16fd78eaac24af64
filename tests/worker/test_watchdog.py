"""A rank without progress is noticed; one that goes on, or that did not run meanwhile, is not."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from hpclab.worker.watchdog import Watchdog, collective_timeout_s


def watch(timeout_s: float | None, calls: list[float], *, first_s: float = 0.0) -> Watchdog:
    return Watchdog(timeout_s, calls.append, first_s=first_s, poll_s=0.01)


@pytest.mark.parametrize(
    ("configured_s", "hang_timeout_s", "expected_s"),
    [(None, 1800.0, 4200.0), (None, 7200.0, 7800.0), (None, None, 3600.0), (50.0, 10.0, 50.0)],
)
def test_a_collective_is_given_up_after_the_watchdog_has_spoken(
    configured_s: float | None, hang_timeout_s: float | None, expected_s: float
) -> None:
    assert collective_timeout_s(configured_s, hang_timeout_s) == expected_s


def test_silence_is_noticed_and_said_again_after_as_long() -> None:
    calls: list[float] = []
    with watch(0.1, calls) as watchdog:
        watchdog.beat()
        deadline = time.monotonic() + 10
        while len(calls) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(calls) >= 2
    assert all(0.1 < silent_s < 0.5 for silent_s in calls)


def test_beats_keep_it_quiet() -> None:
    calls: list[float] = []
    with watch(2.0, calls) as watchdog:
        for _ in range(30):
            watchdog.beat()
            time.sleep(0.02)
    assert calls == []


def test_the_first_iteration_has_longer() -> None:
    calls: list[float] = []
    with watch(0.05, calls, first_s=60.0) as watchdog:
        time.sleep(0.3)
        assert calls == []
        watchdog.beat()
        deadline = time.monotonic() + 10
        while not calls and time.monotonic() < deadline:
            time.sleep(0.01)
    assert calls


def test_without_a_timeout_nobody_watches() -> None:
    before = threading.active_count()
    with watch(None, []):
        assert threading.active_count() == before


SUSPENDED = """
import time
from hpclab.worker.watchdog import Watchdog
with Watchdog(1.0, lambda silent_s: print("hang", flush=True), poll_s=0.05) as watchdog:
    for k in range(30):
        watchdog.beat()
        if k == 5:
            print("now", flush=True)
        time.sleep(0.05)
print("end")
"""


def test_a_suspended_process_does_not_hang() -> None:
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(process.pid, signal.SIGCONT)
    output, _ = process.communicate(timeout=30)
    assert output == "end\n"


STUCK = """
import ctypes
from hpclab.worker.watchdog import Watchdog
def stuck():
    ctypes.PyDLL(None).sleep(2)  # holds the interpreter's lock: no other thread can run
with Watchdog(0.2, lambda silent_s: None, dump_when_stuck=True, poll_s=0.05) as watchdog:
    watchdog.beat()
    import time; time.sleep(0.15)
    stuck()
"""


def test_the_stack_of_a_main_thread_stuck_in_c_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=30, check=True)
    assert "Timeout (" in done.stderr
    assert "in stuck" in done.stderr
