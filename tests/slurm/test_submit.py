from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.config.load import load_config
from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import snapshot
from hpclab.launch.cancel import cancel
from hpclab.launch.manifest import read_manifest
from hpclab.launch.resume import resume
from hpclab.run_folder import RunFolder
from tests.slurm.conftest import SBATCH, FakeSlurm

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
    assert sum(call.startswith("sbatch") for call in slurm.calls()) == 2, "the test and the submission"


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
    with pytest.raises(LaunchError, match="Slurm refuses the job: invalid partition specified: nope"):
        submit("slurm.partition=nope")
    assert not run.path.parent.exists()


def test_a_job_that_is_refused_after_the_test_leaves_nothing_live(
    slurm: FakeSlurm, submit: Submit, run: RunFolder
) -> None:
    refused = "echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1"
    slurm.command("sbatch", f'[ "$1" = --test-only ] && exit; {refused}')
    with pytest.raises(LaunchError, match="Slurm refused the job: Batch job submission failed: Invalid qos") as caught:
        submit()
    assert caught.value.exit_code == 3
    assert not run.path.parent.exists()


def test_a_run_that_was_there_stays_when_its_job_is_refused(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit()
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    other = run.submitit / "10_1_0_log.out"  # of a member of its sweep, which begins meanwhile
    slurm.command("sbatch", f'[ "$1" = --test-only ] && exit; touch {other}; exit 1')
    before = sorted(run.submitit.iterdir())
    with pytest.raises(LaunchError, match="Slurm refused the job"):
        submit()
    assert run.config.exists()
    assert not run.lock.exists()
    assert sorted(run.submitit.iterdir()) == sorted([*before, other])


def test_slurm_judges_the_very_script_first_and_says_when_it_starts(
    slurm: FakeSlurm, submit: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    submit()
    tested, submitted = [call for call in slurm.calls() if call.startswith("sbatch")]
    assert tested == "sbatch --test-only"
    assert "--test-only" not in submitted
    assert (slurm.folder / "tested.sh").read_text() == slurm.script()
    assert "job:        11\nstart:      expected 2026-11-29 23:19:35\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("allocation failure: Invalid feature specification", "Invalid feature specification"),
        (
            "sbatch: error: invalid partition specified: no\nallocation failure: Invalid partition name specified",
            "invalid partition specified: no; Invalid partition name specified",
        ),
        ("sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\"", "unrecognized option '--bogus=1'"),
        ("", "sbatch failed without a word"),
    ],
)
def test_slurms_words(slurm: FakeSlurm, submit: Submit, run: RunFolder, said: str, words: str) -> None:
    (slurm.folder / "said").write_text(said)
    slurm.command("sbatch", 'cat "$RECORDS/said" >&2; exit 1')
    with pytest.raises(LaunchError) as caught:
        submit()
    assert str(caught.value) == f"Slurm refuses the job: {words}"
    assert not run.path.parent.exists()


@pytest.mark.parametrize(
    "down",
    ["Required partition not available (inactive or drain)", "Requested node configuration is not available"],
)
def test_what_may_pass_does_not_refuse_a_job_that_can_wait(
    slurm: FakeSlurm, submit: Submit, capsys: pytest.CaptureFixture[str], down: str
) -> None:
    slurm.command(
        "sbatch", f"if [ $1 = --test-only ]; then echo 'allocation failure: {down}' >&2; exit 1; fi\n{SBATCH}"
    )
    submit()
    assert f"start:      expected later; Slurm now says: {down}" in capsys.readouterr().out


def test_a_job_that_no_node_of_the_partition_can_run_is_refused(
    slurm: FakeSlurm, submit: Submit, run: RunFolder
) -> None:
    slurm.command("sinfo", "printf 'low* n1 idle\\nlow* n2 idle\\n'")
    slurm.command("sbatch", "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1")
    with pytest.raises(LaunchError, match="Slurm refuses the job: Requested node configuration is not available"):
        submit()
    assert not run.path.parent.exists()


def test_pickles_and_locks_are_the_users_own(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    before = os.umask(0o022)
    try:
        submit()
    finally:
        os.umask(before)
    assert run.submitit.stat().st_mode & 0o777 == 0o700
    assert run.lock.stat().st_mode & 0o777 == 0o600
    assert run.config.stat().st_mode & 0o777 == 0o644
    assert run.manifest.stat().st_mode & 0o777 == 0o644


def test_names_and_paths_that_are_not_plain(
    slurm: FakeSlurm, submit: Submit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a b 100%u 'q' \"d\""
    submit(f"run.root={json.dumps(str(root))}", "run.name=dédé")
    folder = str(root / "dédé" / "submitit")
    escaped = folder.replace("%", "%%")
    assert f"#SBATCH --output={shlex.quote(f'{escaped}/%j_0_log.out')}\n" in slurm.script()
    last = shlex.split(slurm.script().splitlines()[-1])
    assert last[len(last) - 1 - last[::-1].index("--output") + 1] == f"{escaped}/%j_%t_log.out"
    assert last[-1] == folder
    assert f"hpclab status {shlex.quote(str(root / 'dédé'))}\n" in capsys.readouterr().out


def test_a_path_with_a_mark_for_the_jobs_number_is_refused(slurm: FakeSlurm, submit: Submit, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds %j, which stands for a job's number"):
        submit(f"run.root={tmp_path}/100%j")
    assert slurm.calls() == []


def test_a_log_folder_that_cannot_be_made_fails_at_submission(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    run.path.mkdir(parents=True)
    run.submitit.touch()
    with pytest.raises(ConfigError, match=r"submitit: (not a folder that can be written|cannot be created)"):
        submit()
    assert not run.lock.exists()
    assert not any("--test-only" not in call for call in slurm.calls() if call.startswith("sbatch"))


def test_a_folder_for_pickles_that_leads_elsewhere_is_refused(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    run.path.mkdir(parents=True)
    run.submitit.symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match=r"submitit: is a link, where only"):
        submit()
    assert not run.lock.exists()
    assert not any("--test-only" not in call for call in slurm.calls() if call.startswith("sbatch"))


def test_the_job_runs_from_a_snapshot(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit(snapshot=True)
    assert (run.code / "hpclab" / "launch" / "snapshot.py").is_file()
    assert read_manifest(run)["launch"]["code"] == "code"
    code = shlex.quote(str(run.code))
    assert f'export PYTHONPATH={code}"${{PYTHONPATH:+:$PYTHONPATH}}"\nexport PYTHONSAFEPATH=1\n' in slurm.script()


def test_an_installed_package_has_no_snapshot_and_says_so(
    slurm: FakeSlurm,
    submit: Submit,
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(snapshot, "_SOURCE_TREE", run.path.parent)
    submit(snapshot=True)
    assert "code:       no snapshot: hpclab is an installed package, not a checkout\n" in capsys.readouterr().out
    assert not run.code.exists()
    assert "PYTHONPATH" not in slurm.script()
    assert read_manifest(run)["launch"]["code"] is None


def test_resume_keeps_the_snapshot_or_takes_a_new_one(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit(snapshot=True)
    first, marker = slurm.script(), run.code / "marker"
    marker.touch()
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    resume(run.path, [])
    assert marker.exists()
    assert slurm.script() == first
    resume(run.path, [], new_code=True, num_nodes=3)
    assert not marker.exists()
    assert "#SBATCH --nodes=3\n" in slurm.script()
    shutil.rmtree(run.code)
    with pytest.raises(ConfigError, match="snapshot of the code is gone; go on with a new one: --new-code"):
        resume(run.path, [])


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
        (("slurm.setup=nope.sh",), {}, r"slurm\.setup=/.*/nope\.sh: no such file"),
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


def test_every_setting_of_a_profile_reaches_the_script(slurm: FakeSlurm, submit: Submit, config: Path) -> None:
    (config.parent / "slurm" / "profiles" / "full.yaml").write_text(
        "partition: p\naccount: a\nqos: q\nconstraint: c\ngres: gpu:x:2\nexclude: n1\nreservation: r\n"
        "mail_user: me@x\nmail_type: END\nsetup: site.sh\ncommand_prefix: apptainer exec --nv image.sif\n"
        "extra: {slurm_comment: a b, switches: 1}\n"
    )
    (config.parent / "site.sh").touch()
    submit(profile="full")
    script = slurm.script()
    for option in (
        "partition=p", "account=a", "qos=q", "constraint=c", "gres=gpu:x:2", "exclude=n1", "reservation=r",
        "mail-user=me@x", "mail-type=END", "comment='a b'", "switches=1",
    ):  # fmt: skip
        assert f"#SBATCH --{option}\n" in script
    assert f"source {config.parent / 'site.sh'}\n" in script
    assert f"--export=ALL apptainer exec --nv image.sif {shlex.quote(sys.executable)} -u -m submitit" in script


@pytest.mark.parametrize(("agents", "nodes"), [("ssh", 2), ("local", 1)])
def test_without_srun_python_takes_the_place_of_the_batch_shell(
    slurm: FakeSlurm, submit: Submit, agents: str, nodes: int
) -> None:
    submit(f"slurm.agents={agents}", num_nodes=nodes)
    script = slurm.script()
    assert "\nsrun " not in script
    assert "#SBATCH --signal=B:USR2@120\n" in script
    assert script.splitlines()[-1].startswith(f"exec {sys.executable} -u -m submitit.core._submit ")


def test_agents_local_is_for_one_node(submit: Submit, run: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"slurm\.agents=local runs on one node, not 2"):
        submit("slurm.agents=local", num_nodes=2)
    assert not run.path.exists()


def test_an_unknown_key_of_a_profile_names_the_valid_ones(submit: Submit, config: Path) -> None:
    (config.parent / "slurm" / "profiles" / "bad.yaml").write_text("zzz: 1\nextra: {time: 3}\n")
    with pytest.raises(ConfigError) as caught:
        submit(profile="bad")
    unknown, own = str(caught.value).splitlines()
    assert "bad.yaml:1: unknown key 'zzz'" in unknown
    assert "partition" in unknown
    assert "command_prefix" in unknown
    assert "time has a setting of its own: slurm.time" in own


def test_a_short_walltime_keeps_time_to_train(slurm: FakeSlurm, submit: Submit) -> None:
    submit("slurm.time=3")
    assert "#SBATCH --signal=USR2@60\n" in slurm.script()


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
