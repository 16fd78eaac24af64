"""A training whose node loses power comes back by itself, and its history says what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import TOOL
from tests.cluster.slurm import SlurmCluster, wait_until
from tests.cluster.training import INTERRUPTED, Training

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_power_cut_is_a_node_failure(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=INTERRUPTED)
    tool = [sys.executable, str(TOOL), "--state", str(cluster.layout.state)]
    hosts = ("n1", "n2")  # the one that leads, and another
    for attempt, host in enumerate(hosts):
        training.wait_for_iterations(3, attempt)
        subprocess.run([*tool, "crash", host], check=True)
        try:
            wait_until(
                lambda host=host: "down" in cluster.run("sinfo", "-h", "-N", "-n", host, "-o", "%T").stdout,
                f"{host} is down",
                90,
            )
        finally:
            subprocess.run([*tool, "boot", host], check=True)
    training.wait_for_end("COMPLETED", timeout_s=240)
    assert training.iterations == list(range(INTERRUPTED))
    assert [one["cause"] for one in training.attempts] == ["node_failure", "node_failure", "completed"]
    for host, one in zip(hosts, training.attempts, strict=False):
        assert host in one["note"]
    assert not training.run.lock.exists()
