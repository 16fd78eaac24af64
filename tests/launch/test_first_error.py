from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpclab.cli import main
from hpclab.launch import jobs
from hpclab.run_folder import RunFolder

TORCH = "2026-11-29 22:06:05,661 torchrunx.n2 ERROR [rank2]:E1129 22:06:04.480000 472 multiprocessing/api.py:836] "


def first_error(run: RunFolder, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["logs", str(run.path), "--first-error", *options])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out + captured.err


def begin(run: RunFolder, cause: jobs.Cause | None = "crashed") -> int:
    if not run.manifest.exists():
        run.manifest.write_text("{}")
    number = jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=2, job_id="11")
    run.logs(number).mkdir(parents=True)
    if cause is not None:
        jobs.finish(run, number, cause, note="why")
    return number


def write(run: RunFolder, attempt: int, rank: int, time: float) -> None:
    record = {"rank": rank, "host": f"n{rank + 1}", "time": time, "iteration": 7, "error": "ValueError: boom"}
    record["traceback"] = "Traceback (most recent call last):\n  File x\nValueError: boom\n"
    run.rank_error(attempt, rank).write_text(json.dumps(record))


def test_the_first_rank_is_shown_with_its_traceback(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run)
    write(run, 0, 0, 2.0)
    write(run, 0, 1, 1.0)
    code, text = first_error(run, capsys)
    assert code == 0
    assert "attempt 0, 19" in text
    assert ": rank 1 on n2 failed at iteration 7: ValueError: boom\nlog: " in text
    assert text.endswith("Traceback (most recent call last):\n  File x\nValueError: boom\n")


def test_the_newest_attempt_that_failed_is_meant(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        write(run, begin(run), rank, 1.0)
    begin(run, None)  # requeued, and it runs
    assert first_error(run, capsys)[1].startswith("attempt 1, ")
    assert first_error(run, capsys, "--attempt", "0")[1].startswith("attempt 0, ")
    assert first_error(run, capsys, "--attempt", "2")[0] == 1


def test_a_killed_rank_shows_the_end_of_its_log(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run)
    run.launcher_log(0).write_text(TORCH + "failed (exitcode: -11) local_rank: 0 (pid: 479) of fn: f\n")
    run.rank_log(0, 1).write_text("".join(f"line {k}\n" for k in range(50)))
    code, text = first_error(run, capsys)
    assert code == 0
    assert "rank 1 on n2 failed: ended by SIGSEGV" in text
    assert text.endswith("line 49\n")
    assert "line 29\n" not in text


def test_an_agent_that_could_not_start_its_workers(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run)
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "OSError: no port"]
    run.launcher_log(0).write_text("x\n" + "".join(f"{TORCH}{line}\n" for line in [*lines, "bye"]))
    code, text = first_error(run, capsys)
    assert code == 0
    assert text.startswith("attempt 0: the launcher on n2 failed: OSError: no port\n")
    assert text.endswith("\n".join(["", *lines, ""]))


def test_without_an_error_one_line_and_exit_code_1(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run, "preempted")
    code, text = first_error(run, capsys)
    assert (code, text) == (1, f"{run.path}: no rank of any attempt left an error (attempt 0: preempted: why)\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--attempt", "3"), "has no attempt 3; the last one is 0"),
        (("-f",), "leave out --rank and --follow"),
        (("--rank", "1"), "leave out --rank and --follow"),
    ],
)
def test_wrong_requests(
    run: RunFolder, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    begin(run)
    code, text = first_error(run, capsys, *options)
    assert code == 2
    assert words in text


def test_before_the_first_attempt(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.manifest.write_text("{}")
    assert first_error(run, capsys)[0] == 2
    assert first_error(RunFolder(Path("nowhere")), capsys)[0] == 2
