from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock
from hpclab.launch.follow import Tail
from hpclab.launch.logs import logs, merged
from hpclab.run_folder import RunFolder


def test_ranks_are_merged_by_time_and_tracebacks_stay_together() -> None:
    lines = {
        0: ["2026-01-01 00:00:01.000 a", "2026-01-01 00:00:03.000 c"],
        10: ["2026-01-01 00:00:02.000 b", "Traceback", "  File", "2026-01-01 00:00:04.000 d"],
    }
    assert list(merged(lines)) == [
        "[ 0] 2026-01-01 00:00:01.000 a",
        "[10] 2026-01-01 00:00:02.000 b",
        "[10] Traceback",
        "[10]   File",
        "[ 0] 2026-01-01 00:00:03.000 c",
        "[10] 2026-01-01 00:00:04.000 d",
    ]


def test_one_rank_needs_no_prefix() -> None:
    assert list(merged({3: ["x", "y"]})) == ["x", "y"]


def test_a_tail_gives_whole_lines_and_waits_for_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    with path.open("ab") as file:
        file.write(b"o\nthree")
    assert tail.lines() == ["two"]
    assert tail.lines(partial=True) == ["three"]


@pytest.fixture
def two_attempts(run: RunFolder) -> RunFolder:
    run.manifest.write_text("{}")
    for attempt in range(2):
        jobs.begin(run, "local", hosts=["h"], num_workers=2)
        run.logs(attempt).mkdir(parents=True)
        for rank in range(2):
            run.rank_log(attempt, rank).write_text(f"2026-01-01 00:00:0{attempt}.{rank}00 a{attempt} r{rank}\n")
        jobs.finish(run, attempt, "completed")
    return run


def test_the_last_attempt_is_printed(two_attempts: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    logs(two_attempts.path, rank=None, attempt=None, follow=False)
    assert [line[-5:] for line in capsys.readouterr().out.splitlines()] == ["a1 r0", "a1 r1"]


def test_following_goes_over_all_attempts_from_the_chosen_one(
    two_attempts: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    logs(two_attempts.path, rank=1, attempt=0, follow=True)
    assert capsys.readouterr().out.endswith("a0 r1\n")
    logs(two_attempts.path, rank=None, attempt=None, follow=True)
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("rank", "attempt", "message"), [(None, 2, "has no attempt 2; the last one is 1"), (5, None, "rank 5 has no log")]
)
def test_what_is_not_there_is_named(
    two_attempts: RunFolder, rank: int | None, attempt: int | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        logs(two_attempts.path, rank=rank, attempt=attempt, follow=False)


def test_a_run_that_has_not_started_has_no_logs(run: RunFolder) -> None:
    run.manifest.write_text("{}")
    with pytest.raises(ConfigError, match="has not started yet"):
        logs(run.path, rank=None, attempt=None, follow=True)


@pytest.mark.parametrize("begun", [True, False], ids=["training", "pending"])
def test_following_asks_slurm_now_and_then_only(
    run: RunFolder, program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Many follow their runs for days, and one controller answers them all."""
    run.manifest.write_text("{}")
    lock.acquire(run, lock.Owner.job("11"))
    if begun:
        jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")
    asked = run.path / "asked"
    program("scontrol", f"echo >> {asked}; echo JobId=11 JobState=RUNNING")
    looks = iter(range(5))
    monkeypatch.setattr("hpclab.launch.logs.interruptible_wait", lambda: next(looks, None) is not None)
    logs(run.path, rank=None, attempt=None, follow=True)
    assert next(looks, None) is None
    assert len(asked.read_text().splitlines()) == 1
