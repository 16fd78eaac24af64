from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock
from hpclab.launch.lock import Owner
from hpclab.launch.status import read_status, status
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


def test_a_crashed_run_names_the_first_error(trained: RunFolder) -> None:
    trained.logs(0).mkdir(parents=True)
    record = {"rank": 1, "host": "h", "time": 1.0, "iteration": 3, "error": "ValueError: boom"}
    trained.rank_error(0, 1).write_text(json.dumps(record))
    jobs.finish(trained, 0, "crashed", note="x")
    found = read_status(trained)
    assert (found.state, found.detail) == ("crashed", "rank 1 on h failed at iteration 3: ValueError: boom")


@pytest.mark.parametrize(
    ("scontrol", "squeue", "state", "detail"),
    [
        (
            "echo JobState=PENDING Reason=Resources StartTime=2026-01-02T00:00:00",
            "exit 1",
            "pending",
            "Resources, start",
        ),
        ("echo JobState=RUNNING Reason=None", "exit 1", "running", ""),
        ("echo JobState=COMPLETING Reason=None", "exit 1", "completing", ""),
        ("exit 1", "exit 1", "unknown", "Slurm cannot be asked about job 11"),
        ("echo JobState=CANCELLED Reason=None", "exit 1", "cancelled", ""),
        ("exit 1", "true", "interrupted", ""),
    ],
)
def test_a_job_is_what_slurm_says(
    trained: RunFolder, program: Program, scontrol: str, squeue: str, state: str, detail: str
) -> None:
    program("scontrol", scontrol)
    program("squeue", squeue)
    lock.acquire(trained, Owner.job("11"))
    found = read_status(trained)
    assert (found.state, found.job_id) == (state, "11")
    assert found.detail.startswith(detail)


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


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        status(tmp_path, as_json=False, watch=False)
    with pytest.raises(ConfigError, match="no such folder"):
        status(tmp_path / "x", as_json=False, watch=False)
