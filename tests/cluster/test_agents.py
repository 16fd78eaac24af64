"""Without srun: the batch step leads, alone on its node or with the other nodes' agents behind ssh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import Training, hpclab, preempt

pytestmark = pytest.mark.cluster


def test_alone_on_its_node_a_preempted_job_saves_and_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    iterations = 1500  # a rank alone needs a hundredth of a second for each, Slurm some seconds to preempt
    options = ("--workers-per-node", "1", "--nodes", "1", "slurm.agents=local")
    training = Training.submit(cluster, tmp_path, *options, iterations=iterations)
    training.wait_for_iterations(3)
    preempt(cluster)
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(iterations))
    assert [attempt["cause"] for attempt in training.attempts] == ["preempted", "completed"]
    assert cluster.job(training.job_id)["Restarts"] == "1"


def test_over_ssh_a_job_is_preempted_crashes_and_is_cancelled(cluster: SlurmCluster, tmp_path: Path) -> None:
    options = ("--workers-per-node", "1", "slurm.agents=ssh")
    training = Training.submit(cluster, tmp_path, *options, iterations=100_000)
    training.wait_for_iterations(3)
    preempt(cluster)
    training.wait_for_attempts(1)
    training.wait_for_iterations(3, attempt=1)
    (rank_1,) = [line.split()[0] for line in cluster.processes("n2") if "multiprocessing.spawn" in line]
    cluster.run("kill", "-SEGV", rank_1, host="n2")
    training.wait_for_attempts(2)
    training.wait_for_iterations(3, attempt=2)
    hpclab(cluster, "cancel", str(training.run.path))
    training.wait_for_end("CANCELLED")
    first, second, third = training.attempts
    assert [attempt["cause"] for attempt in (first, second, third)] == ["preempted", "crashed", "cancelled"]
    assert first["last_iteration"] + 1 == second["first_iteration"]
    assert "rank 1 on n2 failed: ended by SIGSEGV" in second["note"]
    assert cluster.job(training.job_id)["Restarts"] == "2"


def test_a_node_that_ssh_does_not_reach_ends_the_job_with_one_line(cluster: SlurmCluster, tmp_path: Path) -> None:
    keyless = tmp_path / "ssh"
    keyless.write_text('#!/bin/sh\nexec /usr/bin/ssh -F none -i /dev/null -o StrictHostKeyChecking=no "$@"\n')
    keyless.chmod(0o755)
    setup = tmp_path / "setup.sh"
    setup.write_text(f'PATH="{tmp_path}:$PATH"\n')
    options = ("--workers-per-node", "1", "slurm.agents=ssh", f"slurm.setup={setup}")
    training = Training.submit(cluster, tmp_path, *options, iterations=5)
    training.wait_for_end("FAILED")
    (attempt,) = training.attempts
    assert attempt["note"].startswith("n2: no agent could be started over ssh: ")
    assert "Permission denied" in attempt["note"]
    assert "Make `ssh n2 true` work on n1" in attempt["note"]
