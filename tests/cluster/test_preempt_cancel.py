"""A partition whose preempted jobs are cancelled: PreemptMode=CANCEL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import Training, hpclab, preempt

pytestmark = pytest.mark.cluster


def test_without_a_grace_time_the_run_is_preempted_and_can_be_resumed(cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster.run("scontrol", "update", "partitionname=lowcancel", "gracetime=0")
    options = ("--workers-per-node", "1", "slurm.partition=lowcancel")
    training = Training.submit(cluster, tmp_path, *options, iterations=100_000)
    training.wait_for_iterations(3)
    preempt(cluster)
    training.wait_for_end("PREEMPTED")
    said = hpclab(cluster, "status", str(training.run.path)).stdout
    assert "\nstate      preempted" in said
    assert f"hpclab resume {training.run.path}" in said
    hpclab(cluster, "resume", str(training.run.path))
    assert [attempt["cause"] for attempt in training.attempts] == ["preempted"]
