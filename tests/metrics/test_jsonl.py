"""metrics.jsonl holds each iteration once, in whole lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpclab.metrics.jsonl import JsonlSink, read_curve, read_last
from hpclab.metrics.record import Record


def record(iteration: int, attempt: int = 0, **values: float) -> Record:
    return Record(iteration, 10 * (iteration + 1), 1000.0 + iteration, attempt, {"Train/mean_reward": 1.5, **values})


def write(path: Path, iterations: range, attempt: int = 0) -> None:
    sink = JsonlSink(path, first_iteration=iterations.start)
    for iteration in iterations:
        sink.write(record(iteration, attempt))
    sink.close()


def test_a_line_holds_the_record_under_its_tags(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "metrics.jsonl"
    write(path, range(2))
    assert read_last(path) == {
        "iteration": 1, "env_steps": 20, "time": 1001.0, "attempt": 0, "Train/mean_reward": 1.5
    }  # fmt: skip
    assert [line["iteration"] for line in read_curve(path)] == [0, 1]


def test_a_resumed_run_repeats_no_iteration(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(8))
    write(path, range(5, 10), attempt=1)  # the newest checkpoint was of iteration 5
    curve = read_curve(path)
    assert [line["iteration"] for line in curve] == list(range(10))
    assert [line["attempt"] for line in curve] == [0] * 5 + [1] * 5


def test_a_torn_line_is_not_read_and_goes_when_the_run_resumes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(3))
    with path.open("a") as file:
        file.write('{"iteration": 3, "env_st')
    last = read_last(path)
    assert last is not None
    assert last["iteration"] == 2
    assert len(read_curve(path)) == 3
    write(path, range(3, 5), attempt=1)
    assert [line["iteration"] for line in read_curve(path)] == [0, 1, 2, 3, 4]


def test_the_last_line_of_a_long_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(2000))
    assert path.stat().st_size > 2 * 64 * 1024
    last = read_last(path)
    assert last is not None
    assert last["iteration"] == 1999


def test_there_may_be_nothing_to_read(tmp_path: Path) -> None:
    assert read_last(tmp_path / "metrics.jsonl") is None
    assert read_curve(tmp_path / "metrics.jsonl") == []
    (tmp_path / "metrics.jsonl").touch()
    assert read_last(tmp_path / "metrics.jsonl") is None


def test_a_number_that_is_not_finite_becomes_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path, first_iteration=0)
    sink.write(record(0, loss=float("nan"), entropy=float("inf")))
    sink.close()
    last = read_last(path)
    assert last is not None
    assert last["loss"] is None
    assert last["entropy"] is None


def test_a_write_that_stops_half_way_leaves_whole_lines(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path, first_iteration=0)
    sink.write(record(0))
    original = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: original(descriptor, data[:9]))
    with pytest.raises(OSError, match="short write"):
        sink.write(record(1))
    monkeypatch.undo()
    sink.write(record(2))
    sink.close()
    assert [line["iteration"] for line in read_curve(path)] == [0, 2]
    assert path.read_text().count("\n") == 2


def test_reading_needs_no_torch() -> None:
    code = "import sys, hpclab.metrics.jsonl, hpclab.checkpoint.folder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
