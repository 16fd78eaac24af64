"""The job of two nodes on this machine: agents, handover, notices and requeue are those of a cluster."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hpclab.launch import jobs, lock
from hpclab.run_folder import RunFolder
from tests.launch.commands import finish, hpclab, iterations, processes_of, wait_for_attempt, wait_for_iteration

pytestmark = pytest.mark.distributed
TWO_NODES = ("--local", "--nodes", 2, "--workers-per-node", 1)


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "tiny")


def test_a_notice_is_requeued_and_term_ends_the_job(tiny: Path, run: RunFolder) -> None:
    with hpclab("submit", tiny, "run.max_iterations=100000", *TWO_NODES) as process:
        wait_for_iteration(run, process, 2)
        process.send_signal(signal.SIGUSR2)
        wait_for_attempt(run, process, 2)
        wait_for_iteration(run, process, len(iterations(run)) + 2)
        process.send_signal(signal.SIGTERM)
        code, output = finish(process)
    assert code == 130, output
    assert processes_of(run.path) == []
    assert lock.read_owner(run) is None
    first, second = jobs.read(run)
    assert (first.launcher, first.hosts, first.cause) == ("pseudo_nodes", ("localhost", "127.0.0.1"), "preempted")
    assert second.cause == "cancelled"
    assert second.first_iteration is not None
    assert first.last_iteration is not None
    assert second.first_iteration == first.last_iteration + 1
    assert iterations(run) == list(range(len(iterations(run)))), "every iteration once"
    assert not list(run.submitit.glob("*_result.pkl")), "an interrupted job has no result"


def test_a_killed_submitter_stops_the_job(tiny: Path, run: RunFolder) -> None:
    with hpclab("submit", tiny, "run.max_iterations=100000", *TWO_NODES) as process:
        wait_for_iteration(run, process, 1)
        process.kill()
        process.wait()
        assert processes_of(run.path, wait_s=60) == []
    assert run.stop_file(0).exists()
