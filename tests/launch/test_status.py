from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock
from hpclab.launch.lock import Owner
from hpclab.launch.run_status import read_status
from hpclab.launch.status import status
from hpclab.run_folder import RunFolder

Program = Callable[[str, str], None]


@pytest.fixture
def trained(run: RunFolder) -> RunFolder:
    run.manifest.write_text('{"id": "abc", "created": "2026"}')
    run.config.write_text("run: {max_iterations: 10}\n")
    jobs.begin(run, "local", hosts=["h"], num_workers=2)
    run.metrics.mkdir()
    line = {"iteration": 3, "attempt": 0, "time": 5.0, "Perf/total_fps": 100.0, "Train/mean_reward": 1.5}
    line |= {"Perf/collection_time": 1.0, "Perf/learning_time": 0.5}
    (run.metrics / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return run


def test_a_running_run(trained: RunFolder) -> None:
    with lock.held(trained, Owner.this_process()):
        found = read_status(trained)
    assert (found.state, found.iteration, found.max_iterations) == ("running", 4, 10)
    assert (found.steps_per_s, found.mean_reward, found.left_s) == (100.0, 1.5, 9.0)


def test_a_run_whose_process_is_gone(trained: RunFolder) -> None:
    assert read_status(trained).state == "interrupted"


def test_a_crashed_run_names_the_first_error(trained: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trained.logs(0).mkdir(parents=True)
    record = {"rank": 1, "host": "h", "time": 1.0, "iteration": 3, "error": "ValueError: boom"}
    record["traceback"] = "Traceback\n  File x\nKeyError: 'b'\n"
    trained.rank_error(0, 1).write_text(json.dumps(record))
    jobs.finish(trained, 0, "crashed", note="x")
    found = read_status(trained)
    assert (found.state, found.detail) == ("crashed", "rank 1 on h failed at iteration 3: ValueError: boom")
    status(trained.path, as_json=False, watch=False)
    out = capsys.readouterr().out
    assert "state      crashed: rank 1 on h failed at iteration 3: ValueError: boom\n" in out
    assert f"traceback  KeyError: 'b' (in {trained.rank_log(0, 1)})\n" in out
    assert out.endswith(
        f"next       hpclab logs {trained.path} --first-error\n           hpclab resume {trained.path}\n"
    )


@pytest.mark.parametrize(
    ("scontrol", "squeue", "state", "detail"),
    [
        ("JobState=PENDING Reason=Resources StartTime=Unknown", "exit 1", "pending", "Resources (waits for nodes)"),
        ("JobState=PENDING Reason=None", "exit 1", "pending", ""),
        ("JobState=PENDING Reason=QOSMaxJobsPerUserLimit", "", "pending", "QOSMaxJobsPerUserLimit (a limit of the qos"),
        ("JobState=PENDING Reason=Nodes_required_for_job_are_DOWN", "", "pending", "Nodes_required_for_job_are_DOWN"),
        ("JobState=PENDING Reason=BeginTime Restarts=1", "", "pending", "requeued; BeginTime (Slurm lets a requeued"),
        ("JobState=PENDING Reason=JobHeldUser", "", "held", "held (JobHeldUser); let it go with: scontrol release 11"),
        ("JobState=PENDING Reason=RequeueHold Restarts=1", "", "held", "requeued and held (RequeueHold)"),
        ("JobState=REQUEUE_HOLD Reason=job_requeued_in_held_state", "", "held", "held (job_requeued_in_held_state)"),
        ("JobState=SPECIAL_EXIT Reason=None", "", "held", "held; let it go"),
        ("JobState=REQUEUED Reason=None", "", "pending", ""),
        ("JobState=CONFIGURING Reason=None", "", "starting", "its nodes boot"),
        ("JobState=RUNNING Reason=None", "exit 1", "running", ""),
        ("JobState=SUSPENDED Reason=None", "", "suspended", "Slurm has suspended it"),
        ("JobState=COMPLETING Reason=None", "exit 1", "completing", ""),
        ("JobState=CANCELLED Reason=None", "exit 1", "cancelled", ""),
        ("JobState=NODE_FAIL Reason=None", "", "node_failure", ""),
        ("JobState=TIMEOUT Reason=None", "", "timeout", ""),
        ("JobState=PREEMPTED Reason=None", "", "preempted", ""),
        ("JobState=OUT_OF_MEMORY Reason=OutOfMemory", "", "crashed", "out of memory"),
        ("", "exit 1", "unknown", "Slurm cannot be asked about job 11"),
        ("", "true", "interrupted", ""),
    ],
)
def test_a_job_is_what_slurm_says(
    trained: RunFolder, program: Program, scontrol: str, squeue: str, state: str, detail: str
) -> None:
    program("scontrol", f"echo '{scontrol}'" if scontrol else "exit 1")
    program("squeue", squeue or "exit 1")
    lock.acquire(trained, Owner.job("11"))
    found = read_status(trained)
    assert (found.state, found.job_id) == (state, "11")
    assert found.detail.startswith(detail)
    assert found.detail or not detail


def test_a_pending_job_has_a_reason_and_an_expected_start(
    trained: RunFolder, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program("scontrol", "echo JobState=PENDING Reason=Priority StartTime=2026-01-02T00:00:00")
    lock.acquire(trained, Owner.job("11"))
    found = read_status(trained)
    assert (found.reason, found.expected_start) == ("Priority", "2026-01-02T00:00:00")
    status(trained.path, as_json=False, watch=False)
    out = capsys.readouterr().out
    assert "state      pending: Priority (other jobs go first)\n" in out
    assert "starts     2026-01-02T00:00:00\n" in out
    status(trained.path.parent, as_json=False, watch=False)
    assert "pending (Priority)" in capsys.readouterr().out


@pytest.mark.parametrize("cause", ["preempted", "crashed", None])
def test_a_requeue_is_one_run_all_the_way(trained: RunFolder, program: Program, cause: jobs.Cause | None) -> None:
    jobs.finish(trained, 0, "completed")
    jobs.begin(trained, "slurm", hosts=["n1"], num_workers=2, job_id="11")
    lock.acquire(trained, Owner.job("11"))
    seen = []
    ends = ("COMPLETING Restarts=1", "COMPLETED Restarts=1", "PENDING Reason=BeginTime Restarts=1")
    for line in ("RUNNING", *ends, "RUNNING Restarts=1"):
        if line == ends[0] and cause is not None:
            jobs.finish(trained, 1, cause)
        program("scontrol", f"echo JobState={line}")
        found = read_status(trained)
        seen.append((found.state, found.num_attempts, found.job_id))
    assert [state for state, *_ in seen] == ["running", "requeued", "requeued", "pending", "running"]
    assert {rest for _, *rest in seen for rest in [tuple(rest)]} == {(2, "11")}


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("CANCELLED by 1001", "cancelled"),
        ("CANCELLED+", "cancelled"),
        ("NODE_FAIL", "node_failure"),
        ("PREEMPTED", "preempted"),
        ("OUT_OF_ME+", "out_of_me"),
        ("RUNNING", "interrupted"),
        ("", "interrupted"),
    ],
)
def test_accounting_remembers_what_the_controller_has_forgotten(
    trained: RunFolder, program: Program, line: str, state: str
) -> None:
    jobs.finish(trained, 0, "completed")
    jobs.begin(trained, "slurm", hosts=["n1"], num_workers=2, job_id="11")
    lock.acquire(trained, Owner.job("11"))
    program("scontrol", "exit 1")
    program("squeue", "true")
    program("sacct", f"echo '{line}'")
    assert read_status(trained).state == state
    jobs.finish(trained, 1, "crashed", note="boom")
    assert read_status(trained).state == "crashed"  # the run's own record says more


@pytest.mark.parametrize(("cancel_requested", "state"), [(True, "cancelled"), (False, "preempted")])
def test_a_requeued_job_that_ended_before_it_ran_again(
    trained: RunFolder, program: Program, cancel_requested: bool, state: str
) -> None:
    jobs.finish(trained, 0, "completed")
    jobs.begin(trained, "slurm", hosts=["n1"], num_workers=2, job_id="11")
    jobs.finish(trained, 1, "preempted")
    lock.acquire(trained, Owner.job("11"))
    program("scontrol", "exit 1")
    program("squeue", "true")
    if cancel_requested:
        trained.cancel_request.touch()
    assert read_status(trained).state == state
    program("scontrol", "echo JobState=CANCELLED Reason=None")
    assert read_status(trained).state == "cancelled"


def test_a_crashed_job_that_slurm_cannot_be_asked_about_may_come_back(trained: RunFolder, program: Program) -> None:
    jobs.finish(trained, 0, "completed")
    jobs.begin(trained, "slurm", hosts=["n1"], num_workers=2, job_id="11")
    jobs.finish(trained, 1, "crashed")
    lock.acquire(trained, Owner.job("11"))
    program("scontrol", "exit 1")
    program("squeue", "exit 1")
    assert read_status(trained).state == "unknown"
    lock.release(trained)  # as its first node does when it does not come back
    assert read_status(trained).state == "crashed"


def test_json_lists_every_run(trained: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    status(trained.path.parent, as_json=True, watch=False)
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["run"], one["state"]) == (str(trained.path), "interrupted")


def test_both_views_are_drawn(trained: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    status(trained.path.parent, as_json=False, watch=False)
    assert "4/10" in capsys.readouterr().out
    status(trained.path, as_json=False, watch=False)
    assert "abc" in capsys.readouterr().out


def test_before_the_first_run_there_is_a_hint_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status(None, as_json=False, watch=False)
    assert "no runs here yet" in capsys.readouterr().out
    status(None, as_json=True, watch=False)
    assert json.loads(capsys.readouterr().out) == []


def test_a_run_that_only_its_owner_may_read_hides_no_other(
    trained: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    private = trained.path.parent / "private"
    private.mkdir()
    is_file = Path.is_file

    def guarded(path: Path) -> bool:
        if private in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", guarded)
    status(trained.path.parent, as_json=True, watch=False)
    printed = capsys.readouterr()
    assert [found["run"] for found in json.loads(printed.out)] == [str(trained.path)]
    assert printed.err == f"{private}: not shown: you may not read it\n"


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        status(tmp_path, as_json=False, watch=False)
    with pytest.raises(ConfigError, match="no such folder"):
        status(tmp_path / "x", as_json=False, watch=False)


@pytest.mark.parametrize("cause", ["preempted", "timeout", "cancelled", "node_failure"])
def test_an_unfinished_run_offers_to_resume(
    trained: RunFolder, capsys: pytest.CaptureFixture[str], cause: jobs.Cause
) -> None:
    jobs.finish(trained, 0, cause)
    status(trained.path, as_json=False, watch=False)
    assert capsys.readouterr().out.endswith(f"\nnext       hpclab resume {trained.path}\n")


def test_a_complete_run_offers_nothing(trained: RunFolder) -> None:
    jobs.finish(trained, 0, "completed")
    assert read_status(trained).next_commands == ()


def test_a_path_is_offered_as_a_shell_reads_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "d\u00e9 d\u00e9's [1] 100%")
    run.path.mkdir()
    run.manifest.write_text("{}")
    jobs.begin(run, "local", hosts=["h"], num_workers=1)
    (command,) = read_status(run).next_commands
    assert shlex.split(command) == ["hpclab", "resume", str(run.path)]


def test_a_job_that_fails_before_its_workers_names_its_output(run: RunFolder, program: Program) -> None:
    run.manifest.write_text("{}")
    program("scontrol", "echo JobState=FAILED Reason=NonZeroExitCode")
    lock.acquire(run, Owner.job("11"))
    found = read_status(run)
    assert (found.state, found.detail) == (
        "crashed",
        f"its job failed before its workers started; see {run.submitit}",
    )


def test_a_later_job_that_fails_before_its_workers_is_not_explained_by_the_earlier_one(
    trained: RunFolder, program: Program
) -> None:
    jobs.finish(trained, 0, "preempted", note="earlier")
    program("scontrol", "echo JobState=FAILED Reason=NonZeroExitCode")
    lock.acquire(trained, Owner.job("11"))
    assert read_status(trained).detail == f"its job failed before its workers started; see {trained.submitit}"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("lock", "?", ": not a lock"),
        ("jobs.jsonl", '{"event": "start", "attempt": 0}\n', ": holds a line that is no record of an attempt"),
        ("jobs.jsonl", None, ": Is a directory"),
    ],
)
def test_a_damaged_run_hides_no_other(
    trained: RunFolder, capsys: pytest.CaptureFixture[str], name: str, content: str | None, words: str
) -> None:
    other = RunFolder(trained.path.parent / "other[x]")
    other.path.mkdir()
    other.manifest.write_text("{}")
    path = other.path / name
    path.mkdir() if content is None else path.write_text(content)
    status(trained.path.parent, as_json=False, watch=False)
    out = capsys.readouterr().out
    assert "interrupted" in out
    assert "other[x]" in out
    assert read_status(other).detail.startswith(f"{path}{words}")


def test_numbers_that_were_not_finite_are_left_out(trained: RunFolder) -> None:
    line = {"iteration": 3, "attempt": 0, "time": 5.0, "Perf/total_fps": None, "Train/mean_reward": None}
    (trained.metrics / "metrics.jsonl").write_text(json.dumps(line | {"Perf/collection_time": None}) + "\n")
    with lock.held(trained, Owner.this_process()):
        assert read_status(trained).left_s is None
        status(trained.path.parent, as_json=False, watch=False)


def test_a_sweep_is_one_table_with_its_best_member(
    tmp_path: Path, trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, reward in enumerate([1.0, 3.5, None, 2.0]):
        member = RunFolder(tmp_path / "runs" / "lr" / f"lr-{index}")
        member.metrics.mkdir(parents=True)
        sweep = {"name": "lr", "index": index, "values": {"algorithm.learning_rate": 10.0**-index, "seed": index}}
        member.manifest.write_text(json.dumps({"id": str(index), "sweep": sweep}))
        jobs.begin(member, "slurm", hosts=["n"], num_workers=1, job_id=f"11_{index}")
        jobs.finish(member, 0, "completed" if index else "preempted")
        line = {"iteration": 9, "time": 1.0, "Train/mean_reward": reward}
        (member.metrics / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    status(tmp_path / "runs", as_json=False, watch=False)
    out = capsys.readouterr().out
    assert out.index("tiny") < out.index("sweep lr: 4 runs (1 preempted, 3 completed)")
    (best,) = [
        line for line in out.splitlines() if line.lstrip().startswith("* ") and "lr-1" in line and "best" not in line
    ]
    assert "algorithm.learning_rate=0.1" in best
    assert out.endswith("* best so far: lr-1, reward 3.50 at iteration 10\n")
    status(tmp_path / "runs" / "lr", as_json=True, watch=False)
    assert [one["sweep"]["index"] for one in json.loads(capsys.readouterr().out)] == [0, 1, 2, 3]


def test_without_any_slurm_command_a_job_is_unknown(trained: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(trained.path))
    lock.acquire(trained, Owner.job("11"))
    assert shutil.which("scontrol") is None
    assert read_status(trained).state == "unknown"
    jobs.finish(trained, 0, "completed")
    jobs.begin(trained, "slurm", hosts=["n1"], num_workers=2, job_id="11")
    jobs.finish(trained, 1, "completed")
    assert read_status(trained).state == "completed"


def test_a_run_that_came_back_after_a_crash_still_says_what_failed(
    trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    trained.logs(0).mkdir(parents=True)
    record = {"rank": 1, "host": "h", "time": 1.0, "iteration": 3, "error": "ValueError: boom"}
    trained.rank_error(0, 1).write_text(json.dumps(record))
    jobs.finish(trained, 0, "crashed", note="x; not requeued: crashed 2 times")
    assert read_status(trained).detail == (
        "rank 1 on h failed at iteration 3: ValueError: boom; not requeued: crashed 2 times"
    )
    jobs.begin(trained, "local", hosts=["h"], num_workers=2)
    with lock.held(trained, Owner.this_process()):
        status(trained.path, as_json=False, watch=False)
    out = capsys.readouterr().out
    assert "state      running\n" in out
    assert "failure    attempt 0: rank 1 on h failed at iteration 3: ValueError: boom\n" in out
    jobs.finish(trained, 1, "no_progress", note="3 attempts in a row finished no new iteration")
    found = read_status(trained)
    assert (found.state, found.detail) == ("no_progress", "3 attempts in a row finished no new iteration")
    assert found.next_commands[0].endswith("--first-error")


def test_watching_many_runs_is_no_burden_for_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("hpclab.launch.status.interruptible_wait", lambda pause: pauses.append(pause))
    for number in (1, 50):
        for name in range(number):
            (tmp_path / f"run-{name}").mkdir(exist_ok=True)
            (tmp_path / f"run-{name}" / "run.json").write_text("{}")
        status(tmp_path, as_json=True, watch=True)
    assert pauses == [2.0, 5.0]
