from __future__ import annotations

import json

import pytest

from hpclab.launch import jobs
from hpclab.launch.failures import describe, first_error
from hpclab.run_folder import RunFolder


def write(run: RunFolder, rank: int, time: float, *, in_collective: bool = False) -> None:
    run.logs(0).mkdir(parents=True, exist_ok=True)
    record = {"rank": rank, "host": "n1", "time": time, "iteration": 3, "error": f"ValueError: {rank}"}
    run.rank_error(0, rank).write_text(json.dumps(record | {"in_collective": in_collective}))


def test_the_first_rank_that_failed_by_itself_is_named(run: RunFolder) -> None:
    write(run, 0, 1.0, in_collective=True)
    write(run, 1, 3.0)
    write(run, 2, 2.0)
    run.rank_error(0, 3).write_text('{"rank": 3, "ho')
    assert str(first_error(run, 0)) == "rank 2 on n1 failed at iteration 3: ValueError: 2"
    assert describe(run, 0, RuntimeError("x")).endswith(f"log: {run.rank_log(0, 2)}")


def test_without_an_error_file_the_launcher_has_the_word(run: RunFolder) -> None:
    assert first_error(run, 0) is None
    text = describe(run, 0, RuntimeError("worker\nkilled"))
    assert text == f"RuntimeError: worker killed; log: {run.launcher_log(0)}"


AGENT_LINE = (
    "2026-11-29 21:11:55,835 torchrunx.n2 ERROR [rank2]:E1129 21:11:51.247 129 multiprocessing/api.py:836] "
    "failed (exitcode: {code}) local_rank: 1 (pid: 137) of fn: worker_entrypoint (start_method: spawn)\n"
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-11, "ended by SIGSEGV"),
        (-9, "ended by SIGKILL (out of memory, or killed by hand)"),
        (3, "ended with exit code 3, without a word"),
    ],
)
def test_a_killed_rank_goes_before_those_that_waited_for_it(run: RunFolder, code: int, words: str) -> None:
    jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=4)
    write(run, 0, 1.0, in_collective=True)
    run.launcher_log(0).write_text(AGENT_LINE.format(code=code))
    assert str(first_error(run, 0)) == f"rank 3 on n2 failed: {words}"
    write(run, 2, 2.0)
    assert str(first_error(run, 0)) == "rank 2 on n1 failed at iteration 3: ValueError: 2"


def test_a_rank_that_wrote_its_error_is_not_counted_by_its_exit_code(run: RunFolder) -> None:
    jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=4)
    write(run, 3, 1.0)
    run.launcher_log(0).write_text(AGENT_LINE.format(code=1))
    assert str(first_error(run, 0)) == "rank 3 on n1 failed at iteration 3: ValueError: 3"
