from __future__ import annotations

import json

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
