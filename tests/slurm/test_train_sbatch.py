"""What slurm/train.sbatch starts, with a Python and an srun that only say how they are called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.slurm.conftest import FakeSlurm

SCRIPT = Path(__file__).parents[2] / "slurm" / "train.sbatch"
NODE_MAIN = "-m hpclab.launch.node_main"


@pytest.mark.parametrize("agents", ["tasks", "ssh", "local"])
def test_the_agents_of_the_config_are_followed(slurm: FakeSlurm, tmp_path: Path, agents: str) -> None:
    run = tmp_path / "runs" / "one two"
    slurm.command("python", f'[ "$3" = prepare ] && echo "{agents} {run}"; exit 0')
    slurm.command("srun", "true")
    variables = {"SLURM_SUBMIT_DIR": str(tmp_path), "PYTHON": "python", "SLURM_CPUS_PER_TASK": "3"}
    done = subprocess.run(
        ["bash", SCRIPT, "a.yaml", "x=1 2"], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"run folder: {run}\n"
    prepare, *started = slurm.calls()
    assert prepare == f"python {NODE_MAIN} prepare a.yaml x=1 2"
    srun = "srun --unbuffered --kill-on-bad-exit=1 --ntasks-per-node=1 --cpus-per-task=3 --export=ALL "
    assert started == [f"{srun if agents == 'tasks' else ''}python -u {NODE_MAIN} run {run}"]


def test_a_run_that_cannot_be_prepared_starts_nothing(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.command("python", "exit 2")
    variables = {"SLURM_SUBMIT_DIR": str(tmp_path), "PYTHON": "python"}
    done = subprocess.run(["bash", SCRIPT, "a.yaml"], env=os.environ | variables, capture_output=True, check=False)
    assert done.returncode == 2
    assert slurm.calls() == [f"python {NODE_MAIN} prepare a.yaml"]
