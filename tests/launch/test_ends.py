from __future__ import annotations

from collections.abc import Callable

import pytest

from hpclab.launch import jobs
from hpclab.launch.ends import close_lost
from hpclab.run_folder import RunFolder

Program = Callable[[str, str], None]


def closed(run: RunFolder, own_job: str | None = None) -> jobs.Attempt:
    close_lost(run, own_job=own_job)
    return jobs.read(run)[-1]


@pytest.fixture
def lost(run: RunFolder, program: Program) -> RunFolder:
    """A run whose first attempt, of job 11, has no end; no Slurm answers."""
    jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")
    run.logs(0).mkdir(parents=True)
    program("scontrol", "exit 1")
    return run


def test_an_attempt_that_died_without_a_word(lost: RunFolder) -> None:
    assert closed(lost).cause == "node_failure"
    jobs.begin(lost, "local", hosts=["here"], num_workers=1)
    assert closed(lost).cause == "crashed"


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("", "preempted"),
        ("SIGTERM received", "preempted"),
        ("the walltime's end is near", "timeout"),
        ("SIGTERM received; nodes lost: n2", "node_failure"),
    ],
)
def test_a_job_killed_after_it_was_told_to_stop_keeps_that_cause(lost: RunFolder, why: str, cause: str) -> None:
    lost.stop_file(0).write_text(why)
    assert closed(lost, own_job="11").cause == cause


def test_a_job_killed_after_hpclab_cancel_was_cancelled(lost: RunFolder) -> None:
    lost.stop_file(0).write_text("SIGTERM received")
    lost.cancel_request.touch()
    end = closed(lost)
    assert (end.cause, end.note) == ("cancelled", "killed after hpclab cancel, before it had ended")


@pytest.mark.parametrize(
    ("state", "why", "cause"),
    [
        ("CANCELLED", "SIGTERM received", "cancelled"),
        ("CANCELLED", None, "cancelled"),
        ("CANCELLED", "SIGTERM received; nodes lost: n2", "node_failure"),  # cancelled while it waited for its requeue
        ("CANCELLED Restarts=1", "SIGTERM received", "preempted"),  # likewise
        ("TIMEOUT", None, "timeout"),
        ("OUT_OF_MEMORY", None, "crashed"),
        ("FAILED", None, "crashed"),
        ("COMPLETED", None, "node_failure"),  # only a complete run may end so
        ("RUNNING", "SIGTERM received", "preempted"),
    ],
)
def test_slurm_says_what_became_of_another_job(
    lost: RunFolder, program: Program, state: str, why: str | None, cause: str
) -> None:
    program("scontrol", f"echo JobId=11 JobState={state}")
    if why is not None:
        lost.stop_file(0).write_text(why)
    assert closed(lost, own_job="12").cause == cause


def test_accounting_knows_of_a_job_that_the_controller_has_forgotten(lost: RunFolder, program: Program) -> None:
    lost.stop_file(0).write_text("SIGTERM received")
    program("sacct", "echo 'CANCELLED by 1001'")
    end = closed(lost)
    assert (end.cause, end.note) == ("cancelled", "Slurm ended its job as CANCELLED, before it could say so itself")
