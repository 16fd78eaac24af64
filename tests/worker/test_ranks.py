"""Two launched ranks: they stop at the same iteration, and none survives the failure of the other."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.checkpoint import folder as disk
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome
from tests.runners.runs import curve, small_config, write_config
from tests.worker.processes import Ranks, wait_for_file

pytestmark = pytest.mark.distributed
HANG_S = 6.0
"""Long enough for an iteration of the other rank on a busy machine."""


def rank_1_raises(error: BaseException) -> Callable[[], None]:
    """Return what a rank does first, so that rank 1 raises `error` in iteration 3."""

    def prepare() -> None:
        from hpclab.runners.on_policy import OnPolicyRunner

        original = OnPolicyRunner._collect

        def collect(runner: OnPolicyRunner) -> None:
            if runner.collectives.rank == 1 and runner.iteration == 3:
                raise error
            original(runner)

        OnPolicyRunner._collect = collect

    return prepare


def endless(tmp_path: Path) -> RunFolder:
    return write_config(tmp_path, small_config(run={"max_iterations": 1_000_000}))


def wait_for_iterations(run: RunFolder, count: int) -> None:
    wait_for_file(run.metrics / "metrics.jsonl", lambda text: text.count("\n") >= count)


def starts_subprocesses(folder: Path) -> Callable[[], None]:
    """Return what a rank does first, so that it has a forked and another child from iteration 2 on."""

    def prepare() -> None:
        from hpclab.runners.on_policy import OnPolicyRunner

        original = OnPolicyRunner._collect

        def collect(runner: OnPolicyRunner) -> None:
            if runner.iteration == 2:
                forked = os.fork()
                if forked == 0:
                    time.sleep(60)
                    os._exit(0)
                other = subprocess.Popen(["sleep", "60"])
                (folder / f"children-{runner.collectives.rank}").write_text(f"{forked} {other.pid}")
            original(runner)

        OnPolicyRunner._collect = collect

    return prepare


NOTICES = ("signal to rank 0", "signal to rank 1", "USR2 to every process", "stop file", "TERM to all and stop file")


@pytest.mark.parametrize("notice", NOTICES)
def test_all_ranks_stop_at_the_same_iteration(notice: str, tmp_path: Path) -> None:
    run = endless(tmp_path)
    with Ranks(run, starts_subprocesses(tmp_path) if notice == "USR2 to every process" else None) as ranks:
        wait_for_iterations(run, 3)
        if notice == "USR2 to every process":
            children = [int(pid) for file in tmp_path.glob("children-*") for pid in file.read_text().split()]
            assert len(children) == 4
            for child in children:
                os.kill(child, signal.SIGUSR2)
            for rank in range(2):
                ranks.signal(rank, signal.SIGUSR2)
        elif notice == "signal to rank 0":
            ranks.signal(0, signal.SIGUSR1)
        elif notice == "signal to rank 1":
            ranks.signal(1, signal.SIGUSR2)
        elif notice == "stop file":
            run.stop_file(0).touch()
        else:
            ranks.signal(0, signal.SIGTERM)
            ranks.signal(1, signal.SIGTERM)
            run.stop_file(0).touch()
        (code, outcome), other = ranks.end()
    assert code == 0
    assert other == (code, outcome)
    assert outcome is not None
    iteration = outcome.iteration
    assert outcome == Outcome("stopped", iteration, iteration * 128)
    assert disk.iterations(run.checkpoints) == [iteration]
    assert disk.verify(run.checkpoints / f"iter-{iteration:06d}").world_size == 2
    assert [line["iteration"] for line in curve(run)] == list(range(iteration))


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(0), KeyboardInterrupt()])
def test_when_one_rank_fails_both_end_and_say_why(error: BaseException, tmp_path: Path) -> None:
    run = endless(tmp_path)
    with Ranks(run, rank_1_raises(error)) as ranks:
        assert ranks.end() == [(1, None), (1, None)]
    first = json.loads(run.rank_error(0, 1).read_text())
    second = json.loads(run.rank_error(0, 0).read_text())
    assert first["rank"] == 1
    assert first["iteration"] == 3
    assert first["in_collective"] is False
    assert first["error"].startswith(type(error).__name__)
    assert "in collect" in first["traceback"]
    assert "in collect" in run.rank_log(0, 1).read_text()
    assert second["in_collective"] is True
    assert first["time"] < second["time"]


def test_when_one_rank_is_killed_the_other_ends(tmp_path: Path) -> None:
    run = endless(tmp_path)
    with Ranks(run) as ranks:
        wait_for_iterations(run, 2)
        ranks.signal(1, signal.SIGKILL)
        assert ranks.end() == [(1, None), (-signal.SIGKILL, None)]
    assert json.loads(run.rank_error(0, 0).read_text())["in_collective"] is True


def test_a_closing_agent_ends_its_rank_without_waiting(tmp_path: Path) -> None:
    run = endless(tmp_path)
    with Ranks(run) as ranks:
        wait_for_iterations(run, 2)
        ranks.signal(0, signal.SIGTERM)
        ranks.signal(1, signal.SIGTERM)
        codes = [code for code, _ in ranks.end()]
    assert set(codes) <= {143, 1}, "the slower of the two may see the other leave first"
    assert 143 in codes


def test_a_hanging_rank_ends_both_with_the_stacks_of_both(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 1_000_000, "hang_timeout_s": HANG_S}))
    with Ranks(run, rank_1_sleeps) as ranks:
        assert ranks.end() == [(1, None), (1, None)]
    waiting, hung = (json.loads(run.rank_error(0, rank).read_text()) for rank in range(2))
    assert (waiting["cause"], hung["cause"]) == ("hang", "hang")
    assert (waiting["in_collective"], hung["in_collective"]) == (True, False)
    stood_s = re.match(r"hang: no iteration finished for (\d+) s", hung["error"])
    assert stood_s is not None
    assert HANG_S <= int(stood_s[1]) < HANG_S + 10  # a busy machine notices late
    assert hung["iteration"] == 3
    assert "fall_asleep" in hung["traceback"]
    log = run.rank_log(0, 1).read_text()
    assert "(most recent call first)" in log, "the stack of every thread"
    assert "in fall_asleep" in log
    assert "collectives.py" in run.rank_log(0, 0).read_text()


def rank_1_sleeps() -> None:
    from hpclab.runners.on_policy import OnPolicyRunner

    original = OnPolicyRunner._collect

    def fall_asleep(runner: OnPolicyRunner) -> None:
        if runner.collectives.rank == 1 and runner.iteration == 3:
            time.sleep(60)
        original(runner)

    OnPolicyRunner._collect = fall_asleep


def test_a_rank_that_is_closed_says_that_it_was_there(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 1_000_000}))
    with Ranks(run, rank_1_sleeps) as ranks:
        wait_for_iterations(run, 3)
        ranks.signal(1, signal.SIGTERM)
        assert ranks.end()[1][0] == 143
    closed = json.loads(run.rank_error(0, 1).read_text())
    assert closed["error"] == "closed by the launcher"
    assert closed["in_collective"] is True, "never taken for the first to fail"
    assert "fall_asleep" in closed["traceback"]
