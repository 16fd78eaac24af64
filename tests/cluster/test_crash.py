"""Whatever dies of a two-node training, the job comes back once, says which node it was, and goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import INTERRUPTED, Training

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
AGENT = "-m torchrunx "
TASK = "submitit.core._submit"
END_S = 60.0
"""Until a job that has lost one of its processes has ended that attempt: 15 s, more on a busy machine."""


def test_a_killed_part_of_a_node_is_named_and_the_job_comes_back(cluster: SlurmCluster, tmp_path: Path) -> None:
    options = ("--workers-per-node", "1", "slurm.requeue.crashed=2")
    training = Training.submit(cluster, tmp_path, *options, iterations=INTERRUPTED)
    for attempt, part in enumerate((AGENT, TASK)):
        training.wait_for_iterations(3, attempt)
        listed = cluster.processes("n2")
        pids = [line.split()[0] for line in listed if part in line]
        assert pids, listed
        cluster.run("kill", "-9", *pids, host="n2")
        training.wait_for_attempts(attempt + 1, END_S)
    training.wait_for_end("COMPLETED")
    first, second, third = training.attempts
    assert first["note"].startswith("n2: its agent ended by SIGKILL"), first
    assert second["note"].startswith("n2: "), second
    assert {first["cause"], second["cause"]} <= {"crashed", "node_failure"}
    assert third["cause"] == "completed"
    assert training.iterations == list(range(INTERRUPTED))


def test_a_rank_that_stands_still_ends_the_attempt_with_the_others_stacks(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    training = Training.submit(
        cluster, tmp_path, "--workers-per-node", "1", "run.hang_timeout_s=10", iterations=INTERRUPTED
    )
    training.wait_for_iterations(3)
    place = re.search(r"rank 1 of 2 on n2 \(pid (\d+)\)", training.run.rank_log(0, 1).read_text())
    assert place is not None
    cluster.run("kill", "-STOP", place[1], host="n2")
    training.wait_for_attempts(1, 10 + END_S)
    training.wait_for_end("COMPLETED")
    first, second = training.attempts
    assert first["note"].startswith("n2: no word from this node"), first
    assert "hang: no iteration finished for 10 s" in first["note"]
    assert "collectives.py" in training.run.rank_log(0, 0).read_text(), "where rank 0 waited"
    assert second["cause"] == "completed"
    assert training.iterations == list(range(INTERRUPTED))
