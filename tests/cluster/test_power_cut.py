"""A training whose node loses power comes back by itself, and its history says what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import TOOL
from tests.cluster.slurm import SlurmCluster, wait_until
from tests.cluster.training import Training

pytestmark = pytest.mark.cluster

ITERATIONS = 60


@pytest.mark.parametrize("host", ["n1", "n2"], ids=["the first node", "another node"])
def test_a_power_cut_is_a_node_failure(cluster: SlurmCluster, tmp_path: Path, host: str) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=ITERATIONS)
    training.wait_for_iterations(3)
    tool = [sys.executable, str(TOOL), "--state", str(cluster.layout.state)]
    subprocess.run([*tool, "crash", host], check=True)
    try:
        wait_until(
            lambda: "down" in cluster.run("sinfo", "-h", "-N", "-n", host, "-o", "%T").stdout, f"{host} is down", 90
        )
    finally:
        subprocess.run([*tool, "boot", host], check=True)
    training.wait_for_end("COMPLETED", timeout_s=240)
    assert training.iterations == list(range(ITERATIONS))
    first, second = training.attempts
    assert (first["cause"], second["cause"]) == ("node_failure", "completed")
    assert host in first["note"]
    assert not training.run.lock.exists()
