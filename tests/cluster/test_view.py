"""What `status` and `doctor` say of a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster, wait_until
from tests.cluster.training import START_S, Training, hpclab

pytestmark = pytest.mark.cluster


def test_a_requeue_is_one_run_in_status_all_the_way(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=100_000)
    training.wait_for_iterations(3)
    cluster.run("scontrol", "requeue", training.job_id)
    seen: list[dict[str, Any]] = []

    def state() -> str:
        (one,) = json.loads(hpclab(cluster, "status", str(training.run.path.parent), "--json").stdout)
        assert one["job_id"] == training.job_id
        seen.append(one)
        return str(one["state"])

    wait_until(lambda: state() == "pending", "it is pending", START_S)
    wait_until(lambda: state() == "running", "it runs again", START_S)
    assert {one["state"] for one in seen} <= {"running", "completing", "requeued", "pending", "starting"}
    cluster.run("scontrol", "requeuehold", training.job_id)
    wait_until(lambda: state() == "held", "it is held")
    assert f"scontrol release {training.job_id}" in seen[-1]["detail"]


def test_doctor_asks_the_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    said = hpclab(cluster, "doctor", "--nodes", "2", "--workers-per-node", "1", "--json")
    found = {one["check"]: one for one in json.loads(said.stdout)["findings"]}
    assert not [one for one in found.values() if one["level"] == "error"]
    assert found["nodes' job"]["text"].startswith("ran on n1, n2, which see ")
    assert found["versions"]["text"] == "equal on all nodes"
    assert found["all-reduce"]["text"].startswith("64 MB over 2 nodes by gloo: ")
    assert "127." not in found["node addresses"]["text"]
    cluster.assert_nothing_left()


def test_doctor_names_a_partition_that_cancels(cluster: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("partition: lowcancel\ngpus_per_node: 99\n")
    said = hpclab(cluster, "doctor", "--profile", str(tmp_path / "site.yaml"), check=False)
    assert said.returncode == 1
    assert "warning preemption      PreemptMode=CANCEL: a preempted job is cancelled, not requeued" in said.stdout
    assert "0 of the nodes have that much of GPUs, 1 are needed" in said.stdout
