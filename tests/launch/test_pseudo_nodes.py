"""The job of two nodes on this machine: agents, handover, notices and requeue are those of a cluster."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from hpclab.launch import jobs, lock
from hpclab.launch.lock import process_is_alive
from hpclab.run_folder import RunFolder
from tests.launch.commands import finish, hpclab, iterations, processes_of, wait_for_iteration

pytestmark = pytest.mark.distributed
TWO_NODES = ("--local", "--nodes", 2, "--workers-per-node", 1)


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "tiny")


def test_a_notice_is_requeued_and_term_ends_the_job(tiny: Path, run: RunFolder) -> None:
    with hpclab("submit", tiny, "run.max_iterations=100000", *TWO_NODES) as process:
        wait_for_iteration(run, process, 2)
        process.send_signal(signal.SIGUSR2)
        while len(jobs.read(run)) < 2:
            assert process.poll() is None, finish(process)
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


def test_two_nodes_complete(tiny: Path, run: RunFolder) -> None:
    with hpclab("submit", tiny, *TWO_NODES, SLURM_NTASKS="8", RANK="3") as process:
        code, output = finish(process)
    assert code == 0, output
    assert iterations(run) == [0, 1, 2, 3]
    assert processes_of(run.path) == []
    assert [run.rank_log(0, rank).exists() for rank in range(3)] == [True, True, False]
    (handover,) = [path for path in (run.submitit / "handover").iterdir() if path.is_dir()]
    agents = [json.loads((handover / f"{node}.agent").read_text()) for node in range(2)]
    assert agents[0]["pid"] != agents[1]["pid"]
    assert not any(process_is_alive(agent["pid"], agent["started"]) for agent in agents)
    assert oct(handover.parent.stat().st_mode)[-3:] == "700", "commands carry the environment"


def test_a_killed_submitter_stops_the_job(tiny: Path, run: RunFolder) -> None:
    with hpclab("submit", tiny, "run.max_iterations=100000", *TWO_NODES) as process:
        wait_for_iteration(run, process, 1)
        process.kill()
        process.wait()
        assert processes_of(run.path, wait_s=60) == []
    assert run.stop_file(0).exists()
