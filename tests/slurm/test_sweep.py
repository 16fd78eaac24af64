from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.config.load import load_config
from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import jobs
from hpclab.launch.cancel import cancel
from hpclab.launch.manifest import read_manifest
from hpclab.launch.plan import make_plan
from hpclab.launch.resume import resume
from hpclab.launch.sweep_submit import _batches
from hpclab.run_folder import RunFolder
from tests.slurm.conftest import FakeSlurm

Submit = Callable[..., None]
COUNTED = """\
if [ "$1" = --test-only ]; then cat > /dev/null; exit; fi
n=$(cat "$RECORDS/count" 2>/dev/null || echo 11); echo $((n + 1)) > "$RECORDS/count"
grep -o -- "--array=.*" "$1" >> "$RECORDS/calls"; echo Submitted batch job $n
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "tiny"


def members(sweep: Path) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted(sweep.glob("tiny-*"))]


def owner(run: RunFolder) -> str:
    return str(json.loads(run.lock.read_text())["job_id"])


def arrays(slurm: FakeSlurm) -> list[str]:
    return [call for call in slurm.calls() if call.startswith("--array")]


def test_one_array_with_a_run_for_each_member(
    slurm: FakeSlurm, submit: Submit, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(sweep=["algorithm.learning_rate=1e-4,3e-4", "seed=1..2"])
    assert [run.name for run in members(sweep)] == [f"tiny-00{index}" for index in range(4)]
    assert [load_config(run.config).seed for run in members(sweep)] == [1, 2, 1, 2]
    assert [owner(run) for run in members(sweep)] == [f"11_{index}" for index in range(4)]
    entry = read_manifest(members(sweep)[2])["sweep"]
    assert entry == {"name": "tiny", "index": 2, "of": 4, "values": {"algorithm.learning_rate": 3e-4, "seed": 1}}
    script = slurm.script()
    assert "#SBATCH --array=0-3%4\n" in script
    assert "#SBATCH --job-name=tiny\n" in script
    with (sweep / "submitit" / "11_2_submitted.pkl").open("rb") as file:
        assert pickle.load(file).function.run_folder == str(members(sweep)[2].path)
    assert (sweep / "submitit").stat().st_mode & 0o777 == 0o700
    said = capsys.readouterr().out
    assert "tiny-002  11_2\n" in said
    assert f"hpclab status {sweep}" in said
    recorded = json.loads((sweep / "sweep.json").read_text())["members"][3]
    assert recorded == {"run": "tiny-003", "values": entry["values"] | {"seed": 2}, "job_id": "11_3"}


def test_print_shows_the_members_and_the_script_and_writes_nothing(
    slurm: FakeSlurm, submit: Submit, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(sweep=["seed=1..3"], print_only=True)
    shown = capsys.readouterr().out
    assert shown.startswith(f"sweep of 3 runs in {sweep}\ntiny-000  seed=1\ntiny-001  seed=2\n")
    assert not sweep.parent.exists()
    submit(sweep=["seed=1..3"])
    assert shown.endswith(slurm.script() + "\n")


def test_more_than_an_array_may_have_becomes_several(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    slurm.command("scontrol", "echo 'MaxArraySize            = 3'")
    slurm.command("sbatch", COUNTED)
    submit("slurm.max_parallel=2", sweep=["seed=1..7"])
    assert arrays(slurm) == ["--array=0-2%2", "--array=0-2%2"]
    jobs = ["11_0", "11_1", "11_2", "12_0", "12_1", "12_2", "13"]  # the last one is alone
    assert [owner(run) for run in members(sweep)] == jobs
    assert [member["job_id"] for member in json.loads((sweep / "sweep.json").read_text())["members"]] == jobs


def test_two_thousand_runs_are_two_arrays(config: Path) -> None:
    plan = make_plan(config, [], num_nodes=2)
    assert [len(some) for some in _batches([plan] * 2000, 1001)] == [1001, 999]


def test_a_refusal_half_way_says_what_goes_on(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    slurm.command("scontrol", "echo 'MaxArraySize            = 2'")
    full = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    slurm.command("sbatch", f'[ "$1" != --test-only ] && [ -e "$RECORDS/count" ] && {{ {full}; }}\n{COUNTED}')
    with pytest.raises(LaunchError, match="QOSMaxSubmitJobPerUserLimit; 2 of 3 runs had been submitted before"):
        submit(sweep=["seed=1..3"])
    assert [run.lock.exists() for run in members(sweep)] == [True, True, False]
    slurm.command("scontrol", "echo JobId=11 JobState=PENDING")
    cancel(sweep)
    assert [call for call in slurm.calls() if call.startswith("scancel")] == ["scancel 11_0", "scancel 11_1"]


def test_a_refused_sweep_writes_nothing(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    slurm.command("sbatch", "echo 'allocation failure: Invalid job array specification' >&2; exit 1")
    with pytest.raises(LaunchError, match="Slurm refuses the job: Invalid job array specification"):
        submit(sweep=["seed=1..3"])
    assert not sweep.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["seed=1,x"], {}, "seed=x"),
        (["sed=1,2"], {}, "did you mean 'seed'"),
        (["seed=1,2"], {"local": True}, "--sweep is a job array of Slurm"),
        (["seed=1,2"], {"dry_run": True}, "--sweep is a job array of Slurm"),
    ],
)
def test_bad_sweeps_write_nothing(
    slurm: FakeSlurm, submit: Submit, sweep: Path, arguments: list[str], options: dict[str, bool], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        submit(sweep=arguments, **options)
    assert slurm.calls() == []
    assert not sweep.parent.exists()


def test_members_share_one_snapshot_also_when_one_is_resumed(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    submit(sweep=["seed=1..2"], snapshot=True)
    assert (sweep / "code" / "hpclab" / "__init__.py").is_file()
    assert not members(sweep)[0].code.exists()
    assert f"export PYTHONPATH={sweep / 'code'}" in slurm.script()
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    resume(members(sweep)[1].path, [])
    assert f"export PYTHONPATH={sweep / 'code'}" in slurm.script()
    assert "--array" not in slurm.script()
    assert read_manifest(members(sweep)[1])["sweep"]["index"] == 1


def end(run: RunFolder, cause: jobs.Cause, iterations: int) -> None:
    """Let a member's job have run, and ended so."""
    number = jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id=owner(run))
    run.metrics.mkdir()
    lines = [{"iteration": index, "attempt": number} for index in range(iterations)]
    (run.metrics / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    jobs.finish(run, number, cause)


ONLY_11_3_RUNS = """\
[ "$2" = config ] && exit
[ "$4" = 11_3 ] && echo JobId=14 JobState=RUNNING || echo JobId=12 JobState=CANCELLED
"""


def test_the_unfinished_members_go_on_as_one_array(
    slurm: FakeSlurm, submit: Submit, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit("run.max_iterations=3", "slurm.max_parallel=2", sweep=["seed=1..5"], snapshot=True)
    first = json.loads((sweep / "sweep.json").read_text())["members"]
    for index, cause, done in ((0, "completed", 3), (1, "preempted", 1), (4, "crashed", 2)):
        end(members(sweep)[index], cause, done)
    slurm.command("scontrol", ONLY_11_3_RUNS)
    slurm.command("sbatch", COUNTED.replace("echo 11", "echo 20") + 'cp "$1" "$RECORDS/script.sh"')
    capsys.readouterr()
    resume(sweep, ["algorithm.learning_rate=2e-4"])
    said = capsys.readouterr().out
    assert "going on with 3 of 5 runs: tiny-001 (preempted), tiny-002 (never started), tiny-004 (crashed)\n" in said
    assert "complete: tiny-000 (completed)\nrunning or waiting: tiny-003 (Slurm job 11_3)\n" in said
    assert arrays(slurm) == ["--array=0-2%2"]
    assert [owner(run) for run in members(sweep)] == ["11_0", "20_0", "20_1", "11_3", "20_2"]
    recorded = json.loads((sweep / "sweep.json").read_text())["members"]
    assert [member["job_id"] for member in recorded] == ["11_0", "20_0", "20_1", "11_3", "20_2"]
    assert [member["values"] for member in recorded] == [member["values"] for member in first]
    assert read_manifest(members(sweep)[4])["sweep"] == {"name": "tiny", "index": 4, "of": 5, "values": {"seed": 5}}
    rates = [load_config(run.config).algorithm.learning_rate for run in members(sweep)]
    assert [rate == 2e-4 for rate in rates] == [False, True, True, False, True]
    assert f"export PYTHONPATH={sweep / 'code'}" in slurm.script()
    with (sweep / "submitit" / "20_1_submitted.pkl").open("rb") as file:
        assert pickle.load(file).function.run_folder == str(members(sweep)[2].path)
    with pytest.raises(ConfigError, match=r"tiny-003 \(Slurm job 11_3\) may still load the code"):
        resume(sweep, [], new_code=True)


def test_a_member_with_other_nodes_gets_a_job_of_its_own(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    submit(sweep=["seed=1..3"])
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    resume(members(sweep)[1].path, [], num_nodes=1)
    slurm.command("sbatch", COUNTED.replace("echo 11", "echo 20"))
    resume(sweep, [])
    assert [owner(run) for run in members(sweep)] == ["20_0", "21", "20_1"]


def test_a_sweep_with_nothing_to_resume_says_why(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    submit("run.max_iterations=3", sweep=["seed=1..2"])
    with pytest.raises(ConfigError, match=r"nothing to resume: 2 running or waiting: tiny-000 \(Slurm job 11_0\), "):
        resume(sweep, [])
    end(members(sweep)[0], "completed", 3)
    slurm.command("scontrol", '[ "$4" = 11_0 ] && echo JobState=COMPLETED || echo JobState=RUNNING')
    with pytest.raises(ConfigError, match=r"nothing to resume: 1 complete, 1 running or waiting: tiny-001 "):
        resume(sweep, [])
    end(members(sweep)[1], "completed", 3)
    slurm.command("scontrol", "echo JobState=COMPLETED")
    with pytest.raises(ConfigError, match=r"all 2 runs are complete; for more: hpclab resume .* run.max_iterations=N"):
        resume(sweep, [])
    resume(sweep, ["run.max_iterations=4"])
    assert [load_config(run.config).run.max_iterations for run in members(sweep)] == [4, 4]
    assert [one.cause for one in jobs.read(members(sweep)[0])] == ["completed"]


def test_the_same_sweep_goes_on_and_another_is_refused(slurm: FakeSlurm, submit: Submit, sweep: Path) -> None:
    submit(sweep=["seed=1..2"])
    with pytest.raises(ConfigError, match="tiny-000: in use by Slurm job 11_0"):
        submit(sweep=["seed=1..2"])
    slurm.command("scontrol", "echo JobId=11 JobState=CANCELLED")
    identities = [read_manifest(run)["id"] for run in members(sweep)]
    submit(sweep=["seed=1..2"])
    assert [read_manifest(run)["id"] for run in members(sweep)] == identities
    with pytest.raises(ConfigError, match="tiny: holds another sweep; choose another"):
        submit(sweep=["seed=1..3"])
    with pytest.raises(ConfigError, match="tiny: holds a sweep"):
        submit()
