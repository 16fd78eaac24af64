"""Runs with two workers, and alone, stopped in every way and resumed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hpclab.checkpoint import folder as disk
from hpclab.launch import jobs, lock
from hpclab.run_folder import RunFolder
from tests.launch.commands import TIMEOUT_S, finish, hpclab, iterations, processes_of, wait_for_iteration

pytestmark = pytest.mark.distributed
STRAY = {
    "SLURM_NTASKS": "8",
    "SLURM_JOB_ID": "3",
    "SLURM_PROCID": "5",
    "RANK": "7",
    "WORLD_SIZE": "9",
    "MASTER_ADDR": "x",
}


@pytest.fixture
def run(tiny: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "tiny")


def test_two_workers_stop_together_and_go_on(tiny: Path, run: RunFolder) -> None:
    long = "run.max_iterations=100000"
    with hpclab("train", tiny, long, "--num-workers", 2, "--torchrunx-log-dir", "", **STRAY) as process:
        wait_for_iteration(run, process, 2)
        process.send_signal(signal.SIGINT)
        code, output = finish(process)
    assert code == 130, output
    assert f"go on with: hpclab resume {run.path}" in output
    assert processes_of(run.path) == []
    assert lock.read_owner(run) is None
    assert not (run.path / "logs" / "torchrunx").exists()
    assert all(run.rank_log(0, rank).stat().st_size > 0 for rank in range(2))
    done = len(iterations(run))

    with hpclab("resume", run.path, f"run.max_iterations={done + 3}", **STRAY) as process:
        code, output = finish(process)
    assert code == 0, output
    assert iterations(run) == list(range(done + 3))
    first, second = jobs.read(run)
    assert (first.launcher, first.cause, first.last_iteration) == ("local", "cancelled", done - 1)
    assert (second.num_workers, second.cause, second.first_iteration) == (2, "completed", done)
    assert not (run.path / "logs" / "torchrunx").exists(), "resume repeats the recorded options"


def test_a_killed_launcher_leaves_no_process_and_no_lock(tiny: Path, run: RunFolder) -> None:
    with hpclab("train", tiny, "run.max_iterations=100000", "--num-workers", 2) as process:
        wait_for_iteration(run, process, 1)
        assert len(processes_of(run.path, wait_s=0)) >= 3  # an agent and two ranks
        process.kill()
        process.wait()
        assert processes_of(run.path) == []
    owner = lock.read_owner(run)
    assert owner is not None
    assert not owner.is_alive()


def test_a_failing_rank_ends_the_run_with_its_words(tiny: Path, run: RunFolder) -> None:
    # A folder in place of its log: this rank fails before it trains, the other one waits for it.
    run.rank_log(0, 1).mkdir(parents=True)
    with hpclab("train", tiny, "--num-workers", 2) as process:
        code, output = finish(process)
    assert code == 4, output
    assert "rank 1 on " in output.splitlines()[-1]
    assert "IsADirectoryError" in output.splitlines()[-1]
    assert processes_of(run.path) == []
    assert jobs.read(run)[0].cause == "crashed"


def test_a_run_in_process_is_cancelled_and_goes_on(tiny: Path, run: RunFolder) -> None:
    with hpclab("train", tiny, "run.max_iterations=100000", **STRAY) as process:
        wait_for_iteration(run, process, 2)
        with hpclab("cancel", run.path) as cancel:
            assert finish(cancel) == (0, f"stopped; go on with it later: hpclab resume {run.path}\n")
        code, output = finish(process)
    assert code == 130, output
    done = len(iterations(run))
    with hpclab("resume", run.path, f"run.max_iterations={done + 2}") as process:
        code, output = finish(process)
    assert code == 0, output
    assert iterations(run) == list(range(done + 2))
    assert [attempt.cause for attempt in jobs.read(run)] == ["cancelled", "completed"]


def test_a_run_whose_terminal_is_closed_saves_and_stops(tiny: Path, run: RunFolder) -> None:
    with hpclab("train", tiny, "run.max_iterations=100000", "run.save_interval=100000") as process:
        assert process.stdout is not None
        process.stdout.close()  # what is printed from here on goes nowhere, as in `| head`
        process.stdout = None
        wait_for_iteration(run, process, 2)
        process.send_signal(signal.SIGHUP)
        assert process.wait(TIMEOUT_S) == 130
    assert jobs.read(run)[0].cause == "cancelled"
    assert disk.verify(run.checkpoints / "latest").iteration == len(iterations(run))
