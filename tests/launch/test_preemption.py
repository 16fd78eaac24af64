from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.launch import preemption_watch, queue
from hpclab.launch.preemption import Notices, decide
from hpclab.launch.preemption_watch import PreemptionWatch
from hpclab.launch.queue import JobInfo, parse_scontrol

RUNNING = JobInfo("RUNNING")
PREEMPTED = JobInfo("RUNNING", preempted=True)


@pytest.mark.parametrize(
    ("job", "usr2", "term", "cancelled", "timed_out", "action", "cause"),
    [
        # The notice before the walltime's end, or of a preemption that sends USR2.
        (RUNNING, True, False, False, True, "requeue", "timeout"),
        (PREEMPTED, True, True, False, False, "requeue", "preempted"),
        # A preemption with CONT and TERM only.
        (PREEMPTED, False, True, False, False, "requeue", "preempted"),
        # Preempted near the walltime's end is still preempted.
        (PREEMPTED, True, True, False, True, "requeue", "preempted"),
        # scancel, with and without our handlers seeing its TERM; GraceTime 0: Slurm requeues by itself.
        (JobInfo("COMPLETING"), False, True, False, False, "leave", "cancelled"),
        (JobInfo("CANCELLED"), True, True, False, False, "leave", "cancelled"),
        (JobInfo("COMPLETING", preempted=True), True, True, False, False, "leave", "preempted"),
        (JobInfo("PENDING"), False, True, False, False, "leave", "preempted"),
        # hpclab cancel, seen before scancel has reached the controller.
        (RUNNING, True, True, True, False, "leave", "cancelled"),
        # A rank alone got the notice.
        (RUNNING, False, False, False, False, "requeue", "preempted"),
        # Somebody sent TERM to the job, which nobody preempts.
        (RUNNING, False, True, False, False, "fail", "cancelled"),
        # No scontrol here, or a job that may not be requeued.
        (None, True, False, False, False, "fail", "preempted"),
        (JobInfo("RUNNING", may_requeue=False), True, False, False, True, "fail", "timeout"),
    ],
)
def test_decision(
    job: JobInfo | None, usr2: bool, term: bool, cancelled: bool, timed_out: bool, action: str, cause: str
) -> None:
    decision = decide(job, usr2=usr2, term=term, cancel_requested=cancelled, timed_out=timed_out)
    assert (decision.action, decision.cause) == (action, cause)


def test_scontrol_is_read() -> None:
    line = (
        "JobId=11 JobName=g1 UserId=me(1000) Priority=1 JobState=RUNNING Reason=None Requeue=1 Restarts=2 "
        "StartTime=2026-01-01T00:00:00 PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=2026-01-01T01:00:00\n"
    )
    info = parse_scontrol(line)
    assert info == JobInfo("RUNNING", start="2026-01-01T00:00:00", preempted=True, may_requeue=True, restarts=2)
    pending = parse_scontrol("JobId=12 JobState=PENDING Reason=Resources Requeue=0 StartTime=Unknown PreemptTime=None")
    assert pending == JobInfo("PENDING", reason="Resources", start="", preempted=False, may_requeue=False)
    assert parse_scontrol("") is None


def test_a_notice_is_passed_on_while_the_main_thread_is_busy() -> None:
    seen = threading.Event()
    with Notices(lambda number: seen.set()) as notices:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen.wait(5)
    assert notices.received == [signal.SIGUSR2]


def test_old_handlers_come_back_or_the_signal_is_ignored() -> None:
    mine = signal.signal(signal.SIGUSR2, signal.default_int_handler)
    try:
        with Notices(lambda number: None) as notices:
            assert notices.previous_handler(signal.SIGUSR2) is signal.default_int_handler
        assert signal.getsignal(signal.SIGUSR2) is signal.default_int_handler
        with Notices(lambda number: None, (signal.SIGUSR2,), restore=False):
            pass
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, mine)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_helper_is_deaf() -> None:
    with Notices(lambda number: None) as notices:
        child = os.fork()
        if child == 0:
            time.sleep(0.5)
            os._exit(7)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert notices.received == []


@pytest.mark.parametrize(("restarts", "cause"), [(2, "cancelled"), (1, "preempted")])
def test_slurms_own_requeue_is_told_from_a_cancellation(restarts: int, cause: str) -> None:
    job = JobInfo("COMPLETING", restarts=2)
    decision = decide(job, usr2=False, term=True, cancel_requested=False, timed_out=False, restarts=restarts)
    assert (decision.action, decision.cause) == ("leave", cause)


def test_nodes_that_slurm_has_given_up_are_named(program: Callable[[str, str], None]) -> None:
    program("sinfo", "printf 'n1 allocated\\nn2 down*\\nn2 down*\\nn3 idle*\\n'")
    assert queue.down_nodes(["n1", "n2", "n3"]) == ["n2", "n3"]
    program("sinfo", "exit 1")
    assert queue.down_nodes(["n1"]) == []


def test_a_preemption_is_seen_when_slurm_announces_it(
    tmp_path: Path, program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption_watch, "_POLL_S", 0.01)
    asked = tmp_path / "asked"
    program(
        "scontrol", f"echo JobState=RUNNING PreemptTime=$([ -e {asked} ] && echo now || echo None)\necho >> {asked}"
    )
    stops: list[str] = []
    stopped = threading.Event()

    def stop(why: str) -> None:
        stops.append(why)
        stopped.set()

    watch = PreemptionWatch("11", stop)
    with watch.running():
        assert stopped.wait(10)
    assert (watch.seen, stops) == (True, ["Slurm preempts the job"])
    assert len(asked.read_text().splitlines()) == 2, (
        "the first answer was no preemption, and after the second it is over"
    )
