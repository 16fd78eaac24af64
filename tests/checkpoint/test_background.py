"""Checkpoints are written while training goes on, and are there only when every rank's file is."""

import errno
import threading
from pathlib import Path

import pytest
import torch

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.background import Background
from hpclab.checkpoint.store import CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError
from tests.distributed.ranks import run_on_ranks


def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let every write of a file wait for the returned event."""
    gate = threading.Event()
    original = disk.write_file

    def write(path: Path, data: bytes) -> disk.FileEntry:
        assert gate.wait(30.0)
        return original(path, data)

    monkeypatch.setattr(disk, "write_file", write)
    return gate


def begin(store: CheckpointStore, iteration: int, weights: torch.Tensor) -> None:
    store.begin(iteration, shared={"weights": weights}, shard={}, num_envs=1)


def drain(store: CheckpointStore) -> int | None:
    """Advance as iterations do until the write in flight is over."""
    for _ in range(2000):
        saved = store.advance(store.progress())
        if saved is not None:
            return saved
        threading.Event().wait(0.005)
    return None


def test_an_error_of_the_thread_reaches_whoever_waits() -> None:
    def fails() -> None:
        raise KeyError("here")

    job = Background(fails)
    with pytest.raises(KeyError, match="here"):
        job.result()
    assert job.done()
    assert Background(lambda: 3).result() == 3


def test_begin_does_not_wait_and_saves_what_was_there_then(tmp_path: Path, monkeypatch) -> None:
    gate = held_back(monkeypatch)
    store = CheckpointStore(tmp_path, Collectives(), config_sha256="c")
    weights = torch.ones(3)
    begin(store, 5, weights)
    weights.fill_(9.0)  # training goes on
    assert store.progress()["checkpoint/unfinished"] == 1.0
    assert store.advance(store.progress()) is None
    assert disk.iterations(tmp_path) == []
    gate.set()
    assert drain(store) == 5
    assert store.progress() == {"checkpoint/unfinished": 0.0, "checkpoint/failed": 0.0}
    loaded = CheckpointStore(tmp_path, Collectives(), config_sha256="c").load_newest(1)
    assert loaded is not None
    assert loaded.shared["weights"].tolist() == [1.0] * 3


def test_the_next_save_and_the_end_wait_for_the_write_in_flight(tmp_path: Path, monkeypatch) -> None:
    gate = held_back(monkeypatch)
    store = CheckpointStore(tmp_path, Collectives(), config_sha256="c")
    begin(store, 5, torch.ones(1))
    threading.Timer(0.1, gate.set).start()
    begin(store, 10, torch.ones(1))
    assert disk.iterations(tmp_path) == [5]
    assert store.finish() == 10
    assert disk.iterations(tmp_path) == [10, 5]
    assert store.finish() is None


@pytest.mark.parametrize("fails", ["write_file", "publish"])
def test_a_failed_write_is_an_error_once_and_the_next_one_succeeds(fails, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = CheckpointStore(tmp_path, Collectives(), config_sha256="c")
    with monkeypatch.context() as patch:
        patch.setattr(disk, fails, full)
        begin(store, 5, torch.ones(1))
        with pytest.raises(CheckpointError, match=r"iter-000005 could not be written: rank 0 .*No space left"):
            drain(store)
    assert list(tmp_path.iterdir()) == []
    begin(store, 5, torch.ones(1))
    assert store.finish() == 5


def save_unevenly(collectives: Collectives, folder: Path, fails: bool) -> list[str]:
    """Rank 1 writes only when all ranks have seen that nothing is published without it."""
    gate = threading.Event()
    original = disk.write_file

    def write(path: Path, data: bytes) -> disk.FileEntry:
        if collectives.rank == 1:
            assert gate.wait(30.0)
            if fails:
                raise OSError(errno.EIO, "Input/output error")
        return original(path, data)

    disk.write_file = write
    store = CheckpointStore(folder, collectives, config_sha256="c")
    store.begin(5, shared={"w": torch.ones(1)} if collectives.rank == 0 else None, shard={}, num_envs=1)
    seen = []
    for iteration in range(2000):
        if iteration == 10:
            gate.set()
        progress = store.progress()
        sums = collectives.all_reduce_sum(torch.tensor(list(progress.values())))
        objects = collectives.counts["objects"]
        try:
            saved = store.advance(dict(zip(progress, sums.tolist(), strict=True)))
        except CheckpointError as error:
            return [*seen, str(error)]
        if iteration < 10:
            assert saved is None
            assert collectives.counts["objects"] == objects, "no collective of its own while a rank writes"
            assert not disk.iterations(folder)
        if saved is not None:
            assert disk.iterations(folder) == [saved]
            return [*seen, f"saved {saved}"]
        threading.Event().wait(0.005)
    return seen


@pytest.mark.distributed
def test_rank_0_publishes_only_when_every_rank_has_written(tmp_path: Path) -> None:
    assert run_on_ranks(save_unevenly, 2, tmp_path, False) == [["saved 5"]] * 2
    assert sorted(path.name for path in (tmp_path / "iter-000005").iterdir()) == [
        "manifest.json",
        "rank-0000.pt",
        "rank-0001.pt",
        "shared.pt",
    ]


@pytest.mark.distributed
def test_a_rank_that_fails_in_the_background_fails_the_save_on_all(tmp_path: Path) -> None:
    first, second = run_on_ranks(save_unevenly, 2, tmp_path, True)
    assert first == second
    assert "rank 1" in first[0]
    assert "Input/output error" in first[0]
    assert disk.iterations(tmp_path) == []
