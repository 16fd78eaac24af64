"""A training that Slurm or a user interrupts saves, comes back, and goes on with the next iteration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import Training, preempt

pytestmark = pytest.mark.cluster

ITERATIONS = 120
"""Enough to be interrupted in the middle on a fast machine, few enough to end soon on a slow one."""


def assert_went_on(training: Training, causes: list[str]) -> None:
    """The run ended complete, in two attempts, and its curve has every iteration once."""
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(ITERATIONS))
    assert [attempt["cause"] for attempt in training.attempts] == causes
    first, second = training.attempts
    assert first["first_iteration"] == 0
    assert first["last_iteration"] + 1 == second["first_iteration"]
    assert 0 < second["first_iteration"] < ITERATIONS
    assert second["last_iteration"] == ITERATIONS - 1
    assert training.cluster.job(training.job_id)["Restarts"] == "1"
    assert not training.run.lock.exists()


def test_preempted_with_a_notice(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "2", iterations=ITERATIONS)
    training.wait_for_iterations(3)
    high = preempt(cluster)
    cluster.wait_for_state(high, "COMPLETED")
    assert_went_on(training, ["preempted", "completed"])


@pytest.fixture
def plain_cluster(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, with CONT and TERM as only notice of a preemption: Slurm's default."""
    conf = cluster.layout.slurm_etc / "slurm.conf"
    before = conf.read_text()
    conf.write_text(before.replace("SlurmctldParameters=preempt_send_user_signal", ""))
    cluster.run("scontrol", "reconfigure")
    yield cluster
    conf.write_text(before)
    cluster.run("scontrol", "reconfigure")


def test_preempted_by_cont_and_term_only(plain_cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(plain_cluster, tmp_path, "--workers-per-node", "1", iterations=ITERATIONS)
    training.wait_for_iterations(3)
    high = preempt(plain_cluster)
    plain_cluster.wait_for_state(high, "COMPLETED")
    assert_went_on(training, ["preempted", "completed"])
    words = training.words()
    assert "SIGTERM received" in words
    assert "SIGUSR2 received" not in words


def test_usr2_by_hand(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=ITERATIONS)
    training.wait_for_iterations(3)
    cluster.run("scancel", "--signal=USR2", training.job_id)
    assert_went_on(training, ["preempted", "completed"])
