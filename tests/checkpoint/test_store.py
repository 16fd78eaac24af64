"""Checkpoints are complete or not there, whatever happens while they are written."""

import errno
import json
import logging
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.dealing import Piece
from hpclab.checkpoint.retention import Retention
from hpclab.checkpoint.store import Checkpoint, CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError
from tests.distributed.ranks import run_on_ranks


def save(
    folder: Path, iteration: int, *, retention: Retention | None = None, num_envs: int = 4, **metrics: float
) -> None:
    store = CheckpointStore(folder, Collectives(), config_sha256="c", retention=retention)
    weights = torch.full((3,), float(iteration))
    shared, shard = {"weights": weights}, {"state": weights * 2}
    store.save(iteration, shared=shared, shard=shard, num_envs=num_envs, metrics=metrics)


def load(folder: Path, num_envs: int = 4) -> Checkpoint | None:
    return CheckpointStore(folder, Collectives(), config_sha256="c").load_newest(num_envs)


def loaded_iteration(folder: Path) -> int | None:
    checkpoint = load(folder)
    if checkpoint is None:
        return None
    assert checkpoint.shard is not None
    assert checkpoint.shared["weights"].tolist() == [checkpoint.iteration] * 3
    assert checkpoint.shard["state"].tolist() == [checkpoint.iteration * 2] * 3
    return checkpoint.iteration


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_is_loaded_and_latest_points_to_it(tmp_path: Path) -> None:
    assert load(tmp_path / "none") is None
    save(tmp_path, 5)
    save(tmp_path, 10)
    assert loaded_iteration(tmp_path) == 10
    assert (tmp_path / "latest").readlink() == Path("iter-000010")
    assert names(tmp_path) == ["iter-000005", "iter-000010", "latest"]


def test_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    save(tmp_path, 5)
    manifest = json.loads((tmp_path / "iter-000005" / "manifest.json").read_text())
    assert manifest["iteration"] == 5
    assert manifest["world_size"] == 1
    assert manifest["num_envs"] == [4]
    assert manifest["shapes"] == {"weights": [3]}
    assert manifest["config_sha256"] == "c"
    assert manifest["versions"]["torch"] == version("torch")
    for name, entry in manifest["files"].items():
        assert (tmp_path / "iter-000005" / name).stat().st_size == entry["size"]
    assert set(manifest["files"]) == {"shared.pt", "rank-0000.pt"}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "file", "reason"),
    [
        (Path.unlink, "manifest.json", "manifest.json is missing"),
        (truncate, "manifest.json", "manifest.json cannot be read"),
        (truncate, "shared.pt", "shared.pt has"),
        (flip, "shared.pt", "shared.pt has another checksum"),
        (flip, "rank-0000.pt", "rank-0000.pt has another checksum"),
        (Path.unlink, "rank-0000.pt", "rank-0000.pt cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_by_name(damage, file, reason, tmp_path, caplog) -> None:
    save(tmp_path, 5)
    save(tmp_path, 10)  # latest points here
    damage(tmp_path / "iter-000010" / file)
    with caplog.at_level(logging.WARNING, logger="hpclab"):
        assert loaded_iteration(tmp_path) == 5
    assert "iter-000010" in caplog.text
    assert reason in caplog.text
    save(tmp_path, 10)
    assert loaded_iteration(tmp_path) == 10


def test_only_damaged_checkpoints_are_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    save(tmp_path, 5)
    truncate(tmp_path / "iter-000005" / "shared.pt")
    with pytest.raises(CheckpointError, match="damaged"):
        load(tmp_path)


def test_a_manifest_without_a_rank_is_damaged(tmp_path: Path) -> None:
    save(tmp_path, 5)
    path = tmp_path / "iter-000005" / "manifest.json"
    path.write_text(path.read_text().replace('"num_shards": 1', '"num_shards": 2'))
    with pytest.raises(CheckpointError, match=r"does not list rank-0001\.pt"):
        disk.verify(tmp_path / "iter-000005")


def test_a_leftover_of_an_earlier_attempt_does_not_block(tmp_path: Path) -> None:
    leftover = tmp_path / ".tmp-iter-000005"
    leftover.mkdir()
    (leftover / "rank-0007.pt").write_bytes(b"half")
    save(tmp_path, 5)
    assert names(tmp_path / "iter-000005") == ["manifest.json", "rank-0000.pt", "shared.pt"]
    assert loaded_iteration(tmp_path) == 5


def test_old_checkpoints_are_pruned_and_the_newest_kept(tmp_path: Path) -> None:
    for iteration in (5, 10, 15, 20):
        save(tmp_path, iteration, retention=Retention(last=2))
    assert disk.iterations(tmp_path) == [20, 15]
    assert loaded_iteration(tmp_path) == 20


def test_another_number_of_environments_is_dealt_anew(tmp_path: Path) -> None:
    save(tmp_path, 5, num_envs=4)
    checkpoint = load(tmp_path, num_envs=6)
    assert checkpoint is not None
    assert not checkpoint.exact
    assert [piece for piece, _ in checkpoint.pieces] == [Piece(source=0, first=0, at=0, count=4)]
    assert checkpoint.pieces[0][1] is checkpoint.shard
    assert checkpoint.shared["weights"].tolist() == [5.0] * 3


def test_a_file_with_code_in_it_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 5)
    folder = tmp_path / "iter-000005"
    torch.save({"weights": Path("x")}, folder / "shared.pt")
    data = (folder / "shared.pt").read_bytes()
    manifest = disk.read_manifest(folder)
    manifest.files["shared.pt"] = disk.write_file(folder / "shared.pt", data)
    (folder / "manifest.json").write_text(manifest.dump())
    with pytest.raises(CheckpointError, match=r"shared\.pt cannot be loaded"):
        load(tmp_path)


def test_a_full_disk_is_an_error_and_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch) -> None:
    save(tmp_path, 5)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"iter-000010 could not be written: rank 0 .*No space left"):
        save(tmp_path, 10)
    monkeypatch.undo()
    assert loaded_iteration(tmp_path) == 5
    assert names(tmp_path) == ["iter-000005", "latest"]


KILLER = """
import os, signal, sys
from pathlib import Path
from tests.checkpoint.test_store import save

folder = Path(sys.argv[1])
point = 0

def dies(original, countdown):
    def call(*args, **kwargs):
        countdown[0] -= 1
        if countdown[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)
    return call

while True:  # in a child: save iteration 10, killed at the 1st, 2nd, ... call that changes the disk
    point += 1
    attempt = folder / f"killed-at-{point:02d}"
    save(attempt, 5)
    child = os.fork()
    if child == 0:
        countdown = [point]
        for name in ("mkdir", "fsync", "rename", "replace", "symlink", "open", "unlink"):
            setattr(os, name, dies(getattr(os, name), countdown))
        import io
        io.open = dies(io.open, countdown)
        save(attempt, 10)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
print(point)
"""


@pytest.mark.distributed
def test_killed_at_any_point_of_a_save_the_old_or_the_new_one_is_complete(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)], capture_output=True, text=True, check=False, timeout=200
    )
    assert result.returncode == 0, result.stderr
    points = int(result.stdout)
    assert points > 12, "the points of a save are no longer hit"
    seen = []
    for point in range(1, points + 1):
        folder = tmp_path / f"killed-at-{point:02d}"
        seen.append(loaded_iteration(folder))
        save(folder, 10)
        assert loaded_iteration(folder) == 10, f"the next save failed after a kill at point {point}"
        assert (folder / "latest").readlink() == Path("iter-000010")
    assert seen == sorted(seen), "once the new one is there it stays"
    assert set(seen) == {5, 10}


def save_on_rank(collectives: Collectives, folder: Path, fails: int | None) -> str:
    store = CheckpointStore(folder, collectives, config_sha256="c")
    if collectives.rank == fails:
        disk.write_file = lambda path, data: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error"))
    shared = {"weights": torch.ones(2)} if collectives.rank == 0 else None
    try:
        store.save(3, shared=shared, shard={"rank": collectives.rank}, num_envs=collectives.rank + 1)
    except CheckpointError as error:
        return str(error)
    checkpoint = CheckpointStore(folder, collectives, config_sha256="c").load_newest(collectives.rank + 1)
    assert checkpoint is not None
    assert checkpoint.shard is not None
    assert checkpoint.exact
    return f"rank {checkpoint.shard['rank']} of {checkpoint.name}"


@pytest.mark.distributed
def test_two_ranks_save_and_find_their_shards(tmp_path: Path) -> None:
    assert run_on_ranks(save_on_rank, 2, tmp_path, None) == ["rank 0 of iter-000003", "rank 1 of iter-000003"]
    alone = load(tmp_path, num_envs=1)  # one rank goes on with rank 0's environments
    assert alone is not None
    assert alone.shard == {"rank": 0}
    assert not alone.exact
    whole = load(tmp_path, num_envs=3)  # or with those of both
    assert whole is not None
    assert whole.pieces == [(Piece(0, 0, 0, 1), {"rank": 0}), (Piece(1, 0, 1, 2), {"rank": 1})]


@pytest.mark.distributed
def test_a_rank_that_cannot_write_fails_the_save_on_all(tmp_path: Path) -> None:
    first, second = run_on_ranks(save_on_rank, 2, tmp_path, 1)
    assert first == second
    assert "rank 1" in first
    assert "Input/output error" in first
    assert load(tmp_path) is None
    assert names(tmp_path) == []
