"""A run that was interrupted equals one that was not, bit for bit."""

import errno
import logging
import os
import shutil
import time
from pathlib import Path

import pytest

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.store import CheckpointStore
from hpclab.errors import CheckpointError
from hpclab.worker.spec import Outcome
from tests.runners.runs import (
    attempt,
    attempt_on_ranks,
    checkpoint_files,
    curve,
    differences,
    small_config,
    write_config,
)
from tests.variants import VARIANTS


@pytest.mark.parametrize("variant", [*VARIANTS, "distillation"])
def test_4_and_4_iterations_equal_8(variant: str, tmp_path: Path) -> None:
    if variant == "distillation":
        teacher = write_config(tmp_path / "teacher", small_config(run={"max_iterations": 1}))
        attempt(teacher)
        algorithm = {"name": "distillation", "teacher": str(teacher.path), "gradient_length": 5}
        sections = {"algorithm": algorithm, "actor": {"rnn": {"type": "gru", "hidden_dim": 6}}}
    else:
        sections = VARIANTS[variant]
    whole = write_config(tmp_path / "whole", small_config(**sections, run={"max_iterations": 8}))
    assert attempt(whole) == Outcome("completed", 8, 8 * 64)
    parts = write_config(tmp_path / "parts", small_config(**sections, run={"max_iterations": 4}))
    assert attempt(parts) == Outcome("completed", 4, 4 * 64)
    write_config(tmp_path / "parts", small_config(**sections, run={"max_iterations": 8}))
    assert attempt(parts, 1) == Outcome("completed", 8, 8 * 64)
    assert differences(checkpoint_files(whole, 8), checkpoint_files(parts, 8)) == []
    assert curve(whole) == curve(parts)
    assert [line["iteration"] for line in curve(parts)] == list(range(8))
    assert [line["attempt"] for line in curve(parts, without=())] == [0] * 4 + [1] * 4
    assert any("Train/mean_reward" in line for line in curve(parts)), "no episode ended: the tracker was not tested"


@pytest.mark.parametrize("killed_at", [6, 3], ids=["after a checkpoint", "before the first one"])
def test_iterations_after_the_last_checkpoint_are_run_again_and_recorded_once(
    killed_at: int, tmp_path: Path, monkeypatch
) -> None:
    whole = write_config(tmp_path / "whole", small_config(run={"max_iterations": 8}))
    attempt(whole)
    parts = write_config(tmp_path / "parts", small_config(run={"max_iterations": 8, "save_interval": 3}))

    def fails(store: CheckpointStore, iteration: int, **_: object) -> None:
        raise KeyError(f"killed at {iteration}")

    with monkeypatch.context() as patch:
        original = CheckpointStore.begin
        patch.setattr(
            CheckpointStore,
            "begin",
            lambda store, iteration, **state: (original if iteration < killed_at else fails)(store, iteration, **state),
        )
        with pytest.raises(Exception, match=f"killed at {killed_at}"):
            attempt(parts)
    assert [line["iteration"] for line in curve(parts)] == list(range(killed_at))
    attempt(parts, 1)
    kept = killed_at - 3
    assert [line["attempt"] for line in curve(parts, without=())] == [0] * kept + [1] * (8 - kept)
    assert curve(whole) == curve(parts)
    assert differences(checkpoint_files(whole, 8), checkpoint_files(parts, 8)) == []


@pytest.mark.distributed
@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_two_ranks_continue_bit_for_bit(preset: str, tmp_path: Path) -> None:
    sync = {"preset": preset, "checkpoint": "sharded"}
    whole = write_config(tmp_path / "whole", small_config(run={"max_iterations": 6}, sync=sync))
    assert attempt_on_ranks(whole, 2) == [Outcome("completed", 6, 6 * 128)] * 2
    parts = write_config(tmp_path / "parts", small_config(run={"max_iterations": 3}, sync=sync))
    attempt_on_ranks(parts, 2)
    write_config(tmp_path / "parts", small_config(run={"max_iterations": 6}, sync=sync))
    assert attempt_on_ranks(parts, 2, 1) == [Outcome("completed", 6, 6 * 128)] * 2
    files = checkpoint_files(whole, 6)
    assert set(files) == {"shared.pt", "rank-0000.pt", "rank-0001.pt"}
    assert differences(files, checkpoint_files(parts, 6)) == []
    assert curve(whole) == curve(parts)
    # Under mjlab's semantics the normalisers are each rank's own; nothing else may differ between ranks.
    own = {"/".join(map(str, path[:2])) for path, _ in files["rank-0001.pt"]["algorithm_difference"]}
    expected = ("normalizer.mean", "normalizer.var", "normalizer.std") if preset == "mjlab" else ()
    assert own == {f"{model}/{name}" for model in ("actor", "critic") for name in expected}
    assert files["rank-0000.pt"]["algorithm_difference"] == []
    assert differences(files["rank-0000.pt"]["environment"], files["rank-0001.pt"]["environment"]) != []


@pytest.mark.distributed
def test_rank_0s_checkpoint_alone_starts_the_other_ranks_environments_anew(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 2}, sync={"checkpoint": "rank0"}))
    attempt_on_ranks(run, 2)
    assert set(checkpoint_files(run, 2)) == {"shared.pt", "rank-0000.pt"}
    write_config(tmp_path, small_config(run={"max_iterations": 3}, sync={"checkpoint": "rank0"}))
    assert attempt_on_ranks(run, 2, 1) == [Outcome("completed", 3, 3 * 128)] * 2
    said = "2 ranks saved it and only rank 0's own state is in it (sync.checkpoint), 2 go on"
    for rank, environments in enumerate(("8 of rank 0's continue and 0 start anew", "none continue and 8 start anew")):
        log = run.rank_log(1, rank).read_text()
        assert said in log
        assert f"of its 8 environments here {environments}" in log
    assert [line["iteration"] for line in curve(run)] == [0, 1, 2]


def test_a_complete_run_adds_nothing(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config())
    attempt(run)
    before = curve(run, without=())
    assert attempt(run, 1) == Outcome("completed", 4, 4 * 64)
    assert curve(run, without=()) == before


def test_a_step_budget_completes_the_run(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 100, "max_env_steps": 150}))
    assert attempt(run) == Outcome("completed", 3, 3 * 64)


def test_other_models_than_those_saved_are_named(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config())
    attempt(run)
    write_config(tmp_path, small_config(actor={"hidden_dims": [24]}, run={"max_iterations": 9}))
    with pytest.raises(CheckpointError, match="does not fit the configured models"):
        attempt(run, 1)
    assert len(curve(run)) == 4


def test_training_goes_on_when_a_checkpoint_cannot_be_written(tmp_path: Path, monkeypatch, caplog) -> None:
    run = write_config(tmp_path, small_config(run={"save_interval": 2}))
    original = CheckpointStore.begin

    def full(store: CheckpointStore, iteration: int, **state: object) -> None:
        if iteration == 2:
            raise CheckpointError("checkpoint iter-000002 could not be written: No space left on device")
        original(store, iteration, **state)

    monkeypatch.setattr(CheckpointStore, "begin", full)
    with caplog.at_level(logging.ERROR, logger="hpclab"):
        assert attempt(run).kind == "completed"
    assert "iter-000002 could not be written" in caplog.text
    assert "training goes on" in caplog.text


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch, caplog) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 8, "save_interval": 3}))
    original, found = disk.write_file, []

    def slow(path: Path, data: bytes) -> disk.FileEntry:
        deadline = time.monotonic() + 60.0
        while path.parent.name.endswith("iter-000003") and len(curve(run)) < 5:
            assert time.monotonic() < deadline, "training waits for the write"
            time.sleep(0.01)
        found.append((path.parent.name, len(curve(run))))
        return original(path, data)

    monkeypatch.setattr(disk, "write_file", slow)
    with caplog.at_level(logging.INFO, logger="hpclab"):
        attempt(run)
    assert ("iter-000003", 5) in [(name.removeprefix(".tmp-"), min(lines, 5)) for name, lines in found]
    assert "saved after iteration 2" in caplog.text
    assert "saved after iteration 5" in caplog.text
    monkeypatch.undo()
    parts = write_config(tmp_path / "again", small_config(run={"max_iterations": 8}))
    shutil.copytree(run.checkpoints / "iter-000003", parts.checkpoints / "iter-000003")
    attempt(parts)
    assert differences(checkpoint_files(run, 8), checkpoint_files(parts, 8)) == []


def test_a_run_whose_end_cannot_be_saved_fails(tmp_path: Path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = write_config(tmp_path, small_config())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"iter-000004 could not be written: .*No space left"):
        attempt(run)
    monkeypatch.undo()
    assert attempt(run, 1).kind == "completed"


def test_a_checkpoint_folder_that_cannot_be_read_is_no_fresh_start(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config())
    run.checkpoints.write_text("not a folder")
    with pytest.raises(CheckpointError, match="checkpoints cannot be read: Not a directory"):
        attempt(run)
