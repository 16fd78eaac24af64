from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.config.load import load_config
from hpclab.errors import ConfigError, LaunchError
from hpclab.launch.cancel import cancel
from hpclab.launch.manifest import read_manifest
from hpclab.launch.resume import resume
from hpclab.run_folder import RunFolder
from tests.slurm.conftest import FakeSlurm

Submit = Callable[..., None]
GOLDEN = Path(__file__).with_name("golden_sbatch.sh")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "tiny")


def test_the_script_is_the_recorded_one(slurm: FakeSlurm, submit: Submit, tmp_path: Path) -> None:
    submit(profile="site")
    script = slurm.script().replace(str(tmp_path), "/TMP").replace(sys.executable, "PYTHON")
    assert script == GOLDEN.read_text()


def test_print_shows_what_submit_submits_and_starts_nothing(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(profile="site", print_only=True)
    shown = capsys.readouterr().out
    assert slurm.calls() == []
    assert not run.path.parent.exists()
    submit(profile="site")
    assert shown.endswith(slurm.script() + "\n")
    assert "nodes:        2 x 4 GPUs = 8 ranks" in shown
    assert "walltime:     1-12:00:00 an attempt" in shown


def test_after_a_submission_the_job_owns_the_run(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(workers_per_node=2)
    assert json.loads(run.lock.read_text())["job_id"] == "11"
    assert load_config(run.config).launch.num_nodes == 2
    assert load_config(run.config).launch.cpu_workers_per_node == 2
    assert (run.submitit / "11_submitted.pkl").exists()
    said = capsys.readouterr().out
    assert "job:        11" in said
    assert f"hpclab logs -f {run.path}" in said
    with pytest.raises(ConfigError, match="in use by Slurm job 11"):
        submit(workers_per_node=2)
    assert sum(call.startswith("sbatch") for call in slurm.calls()) == 1


def test_leaks_of_a_surrounding_job_are_dropped_and_named(
    slurm: FakeSlurm, submit: Submit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    submit()
    given = slurm.environment()
    assert "SBATCH_PARTITION" not in given
    assert "SLURM_CPUS_PER_TASK" not in given
    assert given["SLURM_CONF"] == "/etc/slurm.conf"
    assert "left out of the job's environment: SBATCH_PARTITION, SLURM_CPUS_PER_TASK" in capsys.readouterr().out


def test_a_refused_job_ends_with_slurms_own_words(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    slurm.command("sbatch", "echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1")
    with pytest.raises(LaunchError, match="Slurm refused the job: invalid partition specified: nope"):
        submit("slurm.partition=nope")
    assert not run.lock.exists()
    assert list(run.submitit.iterdir()) == []


def test_without_sbatch_the_way_out_is_named(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match="no sbatch here"):
        submit()
    assert not run.path.parent.exists()


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ((), {"num_nodes": 0}, "--nodes 0: must be at least 1"),
        ((), {"gpus_per_node": 1, "workers_per_node": 1}, "exclude each other"),
        ((), {"profile": "nope"}, "--profile nope"),
        (("slurm.setup=nope.sh",), {}, "slurm.setup=nope.sh: no such file"),
        (
            ("env.num_envs_scope=global", "env.num_envs=3"),
            {"workers_per_node": 2},
            "env.num_envs=3 for the whole run leaves 0 to a rank of 4",
        ),
    ],
)
def test_bad_requests_write_nothing(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, overrides: tuple[str, ...], options: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        submit(*overrides, **options)
    assert slurm.calls() == []
    assert not run.path.parent.exists()


def test_options_of_a_profile_and_of_the_command_line(slurm: FakeSlurm, submit: Submit) -> None:
    submit("slurm.gres=gpu:a100:2", "slurm.exclude=n[1-3]", "slurm.extra={switches: 1, requeue: false}", profile="site")
    script = slurm.script()
    assert "#SBATCH --gres=gpu:a100:2\n" in script
    assert "--gpus-per-node" not in script
    assert "#SBATCH --exclude='n[1-3]'\n" in script
    assert "#SBATCH --switches=1\n" in script
    assert "--requeue" not in script


def test_a_short_walltime_keeps_time_to_train(slurm: FakeSlurm, submit: Submit) -> None:
    submit("slurm.time=3")
    assert "#SBATCH --signal=USR2@60\n" in slurm.script()


def test_cancel_leaves_a_word_for_the_job_before_scancel(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit()
    slurm.command("scancel", f"test -e {run.cancel_request}")
    cancel(run.path)
    assert slurm.calls()[-1] == "scancel 11"


def test_resume_submits_the_recorded_plan_again(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit(profile="site")
    first = slurm.script()
    identity = read_manifest(run)["id"]
    cancel(run.path)
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    resume(run.path, ["run.max_iterations=9"])
    assert slurm.script() == first
    assert not run.cancel_request.exists()
    assert load_config(run.config).run.max_iterations == 9
    assert read_manifest(run)["id"] == identity
