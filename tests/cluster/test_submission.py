"""What a submission leaves on a real Slurm, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpclab.run_folder import RunFolder
from tests.cluster.slurm import SlurmCluster, wait_until
from tests.cluster.training import HPCLAB, START_S, Training, hpclab, write_config

pytestmark = pytest.mark.cluster


def test_a_waiting_job_runs_the_code_it_was_submitted_with(cluster: SlurmCluster, tmp_path: Path) -> None:
    """On a cluster, moreover, whose jobs start without the submitter's environment."""
    options = ("slurm.extra={hold: true, export: NONE}", "--workers-per-node", "1")
    training = Training.submit(cluster, tmp_path, *options, iterations=5)
    module = training.run.code / "hpclab" / "worker" / "main.py"
    seen = tmp_path / "seen"
    module.write_text(f"{module.read_text()}\nwith open({str(seen)!r}, 'a') as file:\n    print(__file__, file=file)\n")
    cluster.run("scontrol", "release", training.job_id)
    training.wait_for_end("COMPLETED")
    assert set(seen.read_text().splitlines()) == {str(module)}
    assert training.iterations == list(range(5))
    _check_modes(training.run)


def test_a_job_whose_nodes_are_drained_waits(cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster.run("scontrol", "update", "nodename=n1,n2", "state=drain", "reason=maintenance")
    try:
        training = Training.submit(cluster, tmp_path, "--workers-per-node", "1", iterations=5)
        assert cluster.state(training.job_id) == "PENDING"
    finally:
        cluster.cancel_everything()
        cluster.run("scontrol", "update", "nodename=n1,n2", "state=resume")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("slurm.partition=nope",), "invalid partition specified: nope"),
        (("--nodes", "5"), "Requested node configuration is not available"),
        (("slurm.constraint=nope",), "Invalid feature specification"),
        (("slurm.extra={bogus: 1}",), "unrecognized option"),
    ],
)
def test_a_rejected_submission_has_slurms_words_and_leaves_nothing(
    cluster: SlurmCluster, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    config = write_config(tmp_path, iterations=5)
    done = hpclab(cluster, "submit", str(config), "--workers-per-node", "1", *options, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith(("Slurm refuses the job: ", "Slurm refused the job: "))
    assert words in done.stderr
    assert not (tmp_path / "runs").exists()
    assert cluster.run("squeue", "-h").stdout == ""


def test_a_sweep_is_one_array_whose_members_come_back_by_themselves(cluster: SlurmCluster, tmp_path: Path) -> None:
    config = write_config(tmp_path, iterations=100_000)
    said = hpclab(cluster, "submit", str(config), "--workers-per-node", "1", "--sweep", "seed=1..2").stdout
    array = next(line.split()[2] for line in said.splitlines() if line.startswith("job array:"))
    sweep = tmp_path / "runs" / "cartpole"
    members = [Training(cluster, RunFolder(sweep / f"cartpole-00{k}"), f"{array}_{k}") for k in range(2)]
    for member in members:
        wait_until(lambda member=member: len(member.iterations) > 2, f"iterations of {member.job_id}", START_S)
    cluster.run("scontrol", "requeue", members[1].job_id)
    wait_until(lambda: len(members[1].attempts) == 1, "the end of the first attempt", START_S)
    assert members[0].attempts == []
    shown = json.loads(hpclab(cluster, "status", "--json", str(sweep)).stdout)
    assert [one["job_id"] for one in shown] == [member.job_id for member in members]
    hpclab(cluster, "cancel", str(sweep))
    wait_until(lambda: cluster.run("squeue", "-h").stdout == "", "an empty queue", START_S)
    cluster.assert_nothing_left()


def test_submitting_from_inside_an_allocation(cluster: SlurmCluster, tmp_path: Path) -> None:
    config = write_config(tmp_path, iterations=5)
    out = tmp_path / "outer.out"
    outer = cluster.sbatch(
        "--nodes=1", "--cpus-per-task=2", f"--output={out}",
        f"--wrap=srun {HPCLAB} submit {config} --nodes 2 --workers-per-node 1",
    )  # fmt: skip
    cluster.wait_for_state(outer, "COMPLETED", timeout_s=START_S)
    said = out.read_text()
    assert "left out of the job's environment: " in said
    assert "SLURM_CPUS_PER_TASK" in said
    job_id = next(line.split()[1] for line in said.splitlines() if line.startswith("job:"))
    Training(cluster, RunFolder(tmp_path / "runs" / "cartpole"), job_id).wait_for_end("COMPLETED")


def _check_modes(run: RunFolder) -> None:
    """Private is what lets others run code as the user; the rest follows the umask."""
    umask = os.umask(0o022)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in (run.submitit, run.submitit / "handover")} == {0o700}
    public = [run.config, run.manifest, run.metrics / "metrics.jsonl", run.rank_log(0, 0), run.launcher_log(0)]
    assert [path.name for path in public if path.stat().st_mode & 0o777 != 0o666 & ~umask] == []
