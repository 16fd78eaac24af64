"""A rank that takes more memory than its job may is killed by the kernel, and the run says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.cgroups import detect_tracking, memory_cgroup
from slurm_lab.settings import ClusterError, Layout

from tests.cluster.conftest import TOOL
from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import Training, hpclab

pytestmark = pytest.mark.cluster
HUNGRY = """
import os, pathlib, threading, time
if os.environ.get("RANK") == "1":
    sign = pathlib.Path({sign!r})

    def eat():
        while not sign.exists():
            time.sleep(0.02)
        sign.unlink()
        kept = [bytes([1]) * 2**24 for _ in range(1000)]

    threading.Thread(target=eat, daemon=True).start()
"""


@pytest.fixture
def limited_cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    """A cluster whose kernel holds jobs to the memory that they asked for."""
    try:
        memory_cgroup(detect_tracking())
    except ClusterError as error:
        pytest.skip(str(error))
    tool = [sys.executable, str(TOOL), "--state", str(tmp_path / "slurm")]
    subprocess.run([*tool, "up", "--memory-limits", "--cred-expire", "5"], check=True)
    try:
        yield SlurmCluster(Layout(tmp_path / "slurm"))
    finally:
        subprocess.run([*tool, "down"], check=True, capture_output=True)


def test_a_rank_without_memory_is_named(limited_cluster: SlurmCluster, tmp_path: Path) -> None:
    options = ("--workers-per-node", "1", "slurm.memory=3G", "slurm.extra={hold: true}", "slurm.requeue.crashed=0")
    training = Training.submit(limited_cluster, tmp_path, *options, iterations=100_000)
    module = training.run.code / "hpclab" / "worker" / "main.py"
    module.write_text(module.read_text() + HUNGRY.format(sign=str(tmp_path / "sign")))
    limited_cluster.run("scontrol", "release", training.job_id)
    training.wait_for_iterations(3)
    (tmp_path / "sign").touch()
    training.wait_for_end("FAILED")
    words = "rank 1 on n2 failed: out of memory, killed by the kernel; raise slurm.memory, or lower env.num_envs"
    said = hpclab(limited_cluster, "logs", str(training.run.path), "--first-error").stdout
    assert said.startswith(f"attempt 0: {words}\n")
    assert "rank 1 of 2 on n2" in said, "its log"
    budget = "not requeued: crashed 1 time (slurm.requeue.crashed=0 requeues are used up)"
    assert f"state      crashed: {words}; {budget}" in hpclab(limited_cluster, "status", str(training.run.path)).stdout
    (attempt,) = training.attempts
    assert attempt["cause"] == "crashed"
    assert attempt["note"].startswith(words)
