"""Training on a real Slurm of two nodes, through the command line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from hpclab.run_folder import RunFolder
from tests.cluster.slurm import SlurmCluster, wait_until
from tests.cluster.training import HPCLAB, PROJECT, Training, hpclab, write_config

pytestmark = pytest.mark.cluster
END_S = 15.0
"""Until the whole job has ended when a rank has: by the clock of those who record it, not of a test that polls."""


def test_two_nodes_train_to_the_end(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "2", iterations=20)
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(20))
    logs = sorted(path.name for path in training.run.logs(0).glob("rank-*.log"))
    assert logs == [f"rank-{rank:04d}.log" for rank in range(4)]
    assert [attempt["cause"] for attempt in training.attempts] == ["completed"]
    assert not training.run.lock.exists()


def test_cancelling_is_final(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=100_000)
    training.wait_for_iterations(3)
    hpclab(cluster, "cancel", str(training.run.path))
    training.wait_for_end("CANCELLED")
    # On a busy machine Slurm may kill the first node's task before it has written this.
    assert [attempt["cause"] for attempt in training.attempts] in (["cancelled"], [])
    assert "\nstate      cancelled" in hpclab(cluster, "status", str(training.run.path)).stdout
    assert cluster.job(training.job_id)["Restarts"] == "0"


def test_cancelling_a_job_that_waits(cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster.wait_for_state(cluster.sbatch("-p", "high", "-N2", "--exclusive", "--wrap=sleep 1000"), "RUNNING")
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=100_000)
    folder = str(training.run.path)
    assert "pending" in hpclab(cluster, "status", folder).stdout
    again = hpclab(cluster, "submit", str(tmp_path / "cartpole.yaml"), "--workers-per-node", "1", check=False)
    assert again.returncode == 2
    assert f"in use by Slurm job {training.job_id}" in again.stderr
    hpclab(cluster, "cancel", folder)
    assert cluster.state(training.job_id) == "CANCELLED"
    assert "cancelled" in hpclab(cluster, "status", folder).stdout
    assert not training.attempts


def test_scancel_is_final_also_while_a_notice_is_handled(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=100_000)
    training.wait_for_iterations(3)
    cluster.run("scancel", "--signal=USR2", training.job_id)
    wait_until(training.run.stop_file(0).exists, "the notice has arrived")
    cluster.run("scancel", training.job_id)
    training.wait_for_end("CANCELLED")
    assert cluster.job(training.job_id)["Restarts"] == "0"


def test_a_rank_that_segfaults_ends_the_job_soon(cluster: SlurmCluster, tmp_path: Path) -> None:
    training = Training.submit(
        cluster, tmp_path, "--workers-per-node", "1", "slurm.requeue.crashed=0", iterations=100_000
    )
    training.wait_for_iterations(3)
    rank_1 = [line.split()[0] for line in cluster.processes("n2") if "multiprocessing.spawn" in line]
    assert len(rank_1) == 1, cluster.processes("n2")
    fault = float(cluster.run("sh", "-c", f"date +%s.%N && kill -SEGV {rank_1[0]}", host="n2").stdout)
    training.wait_for_end("FAILED")
    assert {attempt["attempt"] for attempt in training.attempts} == {0}
    attempt = training.attempts[-1]  # the end is recorded at once, and again with what became of the job
    assert attempt["cause"] == "crashed"
    assert "rank 1 on n2" in attempt["note"]
    assert "SIGSEGV" in attempt["note"]
    job_end = datetime.fromisoformat(cluster.job(training.job_id)["EndTime"]).timestamp()
    assert fault < attempt["time"] < fault + END_S
    assert job_end < fault + END_S


def test_sbatch_script_trains_without_submitit(cluster: SlurmCluster, tmp_path: Path) -> None:
    config = write_config(tmp_path, iterations=10)
    python = Path(HPCLAB).with_name("python")
    job_id = cluster.sbatch(
        "--nodes=2", "--cpus-per-task=1", f"--export=ALL,PYTHON={python}", f"--output={tmp_path}/job.out",
        f"--chdir={PROJECT}", str(PROJECT / "slurm" / "train.sbatch"), str(config), "launch.cpu_workers_per_node=1",
    )  # fmt: skip
    training = Training(cluster, RunFolder(tmp_path / "runs" / "cartpole"), job_id)
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(10))
    assert [attempt["cause"] for attempt in training.attempts] == ["completed"]


def test_a_refused_submission_says_why_and_owns_no_run(cluster: SlurmCluster, tmp_path: Path) -> None:
    config = write_config(tmp_path, iterations=10)
    options = ("--nodes", "2", "--workers-per-node", "1", "slurm.partition=nowhere")
    refused = hpclab(cluster, "submit", str(config), *options, check=False)
    assert refused.returncode == 3
    assert "invalid partition specified: nowhere" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    run = RunFolder(tmp_path / "runs" / "cartpole")
    assert not run.lock.exists()
    assert not run.jobs.exists()
    assert not cluster.run("squeue", "--noheader").stdout
