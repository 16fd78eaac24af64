from __future__ import annotations

import errno
import json
import os

import pytest

from hpclab.launch import jobs
from hpclab.run_folder import RunFolder


def test_attempts_are_numbered_and_carry_their_iterations(run: RunFolder) -> None:
    first = jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=4, job_id="11")
    run.metrics.mkdir()
    lines = [{"iteration": 0, "attempt": 0}, {"iteration": 1, "attempt": 0}]
    (run.metrics / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    jobs.finish(run, first, "preempted", note="notice received")
    second = jobs.begin(run, "slurm", hosts=["n3"], num_workers=2, job_id="11")
    assert (first, second) == (0, 1)
    done, running = jobs.read(run)
    assert (done.cause, done.hosts, done.first_iteration, done.last_iteration) == ("preempted", ("n1", "n2"), 0, 1)
    assert (running.cause, running.end, running.job_id) == (None, None, "11")


def test_a_line_torn_by_a_crash_is_skipped(run: RunFolder) -> None:
    jobs.begin(run, "local", hosts=["here"], num_workers=1)
    with run.jobs.open("a") as file:
        file.write('{"event": "end", "att')
    assert [attempt.cause for attempt in jobs.read(run)] == [None]


def test_a_torn_line_takes_no_later_one_with_it(run: RunFolder) -> None:
    jobs.begin(run, "local", hosts=["here"], num_workers=1)
    with run.jobs.open("a") as file:
        file.write('{"event": "end", "att')  # the disk was full
    assert jobs.begin(run, "local", hosts=["here"], num_workers=1) == 1
    jobs.finish(run, 1, "completed")
    assert [attempt.cause for attempt in jobs.read(run)] == [None, "completed"]


def test_an_end_that_the_disk_does_not_take_ends_the_attempt_all_the_same(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    jobs.begin(run, "local", hosts=["here"], num_workers=1)
    monkeypatch.setattr(os, "fsync", full)
    jobs.finish(run, 0, "completed")
    assert "the end of attempt 0 (completed) could not be recorded: [Errno 28] No space left" in capsys.readouterr().err
    with pytest.raises(OSError, match=r"No space left.*jobs\.jsonl"):
        jobs.begin(run, "local", hosts=["here"], num_workers=1)


def test_a_run_without_attempts_has_none(run: RunFolder) -> None:
    assert jobs.read(run) == []


def test_an_end_may_be_looked_at_before_it_is_recorded(run: RunFolder) -> None:
    jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")
    jobs.finish(run, 0, "preempted")
    jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")
    assert [one.cause for one in jobs.as_ended(run, 1, "crashed")] == ["preempted", "crashed"]
    assert [one.cause for one in jobs.read(run)] == ["preempted", None]
