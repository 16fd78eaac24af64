"""A training that Slurm or a user interrupts saves, comes back, and goes on with the next iteration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import INTERRUPTED, Training, preempt

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def assert_went_on(training: Training, causes: list[str]) -> None:
    """The run ended complete, its attempts ended by these causes, and its curve has every iteration once."""
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(INTERRUPTED))
    assert [attempt["cause"] for attempt in training.attempts] == causes
    firsts = [attempt["first_iteration"] for attempt in training.attempts]
    lasts = [attempt["last_iteration"] for attempt in training.attempts]
    assert firsts == [0, *(last + 1 for last in lasts[:-1])]
    assert all(0 < first < INTERRUPTED for first in firsts[1:])
    assert lasts[-1] == INTERRUPTED - 1
    assert training.cluster.job(training.job_id)["Restarts"] == str(len(causes) - 1)
    assert not training.run.lock.exists()


def test_preempted_with_a_notice(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "2", iterations=INTERRUPTED)
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


def test_preempted_by_cont_and_term_only_and_then_told_by_hand(plain_cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(plain_cluster, tmp_path, "--workers-per-node", "1", iterations=INTERRUPTED)
    training.wait_for_iterations(3)
    high = preempt(plain_cluster)
    plain_cluster.wait_for_state(high, "COMPLETED")
    training.wait_for_iterations(3, attempt=1)
    words = training.words()
    assert "SIGTERM received" in words
    assert "SIGUSR2 received" not in words
    plain_cluster.run("scancel", "--signal=USR2", training.job_id)
    assert_went_on(training, ["preempted", "preempted", "completed"])
    assert "SIGUSR2 received" in training.words()
