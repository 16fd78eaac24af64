"""Checkpoint folders on disk: names, manifest, completeness. No torch here: `hpclab status` looks at them too.

    checkpoints/iter-000050/{shared.pt, rank-0000.pt, ..., manifest.json}    checkpoints/latest -> iter-000050

The number is that of iterations done, so also of the iteration to go on with. A folder is written under a temporary
name and renamed when all its files are on disk: under its own name it is complete, unless damaged later.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpclab.errors import CheckpointError
from hpclab.run_folder import sync_folder

SHARED_FILE = "shared.pt"
MANIFEST_FILE = "manifest.json"
LATEST = "latest"
_NAME = re.compile(r"iter-(\d{6,})")
_TEMPORARY = ".tmp-"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a checkpoint as it was written."""

    size: int
    """Length [bytes]."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds, and what it takes to continue from it exactly."""

    iteration: int
    world_size: int
    num_envs: tuple[int, ...]
    """Environments of each rank."""
    num_shards: int
    """Ranks whose own state is in it, from 0 up: all, rank 0 alone, or none where the training state was imported."""
    config_sha256: str
    """Of the run's config.yaml when it was written."""
    versions: dict[str, str]
    """Of Python and the packages that produced the numbers."""
    shapes: dict[str, list[int]]
    """Of every tensor in shared.pt, by its path."""
    files: dict[str, FileEntry]
    metrics: dict[str, float] = field(default_factory=dict)
    """What the iteration before it reported, by log tag: decides which checkpoint is the best."""

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """Read what `dump` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            files = {name: FileEntry(**entry) for name, entry in fields.pop("files").items()}
            fields.setdefault("num_shards", fields["world_size"])  # one that does not say holds all
            return cls(files=files, num_envs=tuple(fields.pop("num_envs")), **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a manifest: {error}") from error


def rank_file(rank: int) -> str:
    return f"rank-{rank:04d}.pt"


def folder_name(iteration: int) -> str:
    return f"iter-{iteration:06d}"


def temporary_name(iteration: int) -> str:
    return f"{_TEMPORARY}{folder_name(iteration)}"


def iterations(checkpoints: Path) -> list[int]:
    """Return the iterations that have a checkpoint folder, newest first, complete or not; none without the folder."""
    try:
        names = [entry.name for entry in checkpoints.iterdir()]
    except FileNotFoundError:
        return []
    return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)


def read_manifest(folder: Path) -> Manifest:
    """Read a checkpoint's manifest.

    Raises:
        CheckpointError: it is missing or unreadable.
    """
    try:
        return Manifest.parse((folder / MANIFEST_FILE).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: {MANIFEST_FILE} is missing") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: {MANIFEST_FILE} cannot be read: {error}") from error


def verify(folder: Path) -> Manifest:
    """Read every file of a checkpoint and return its manifest.

    Raises:
        CheckpointError: a file is missing, has another size, or another checksum; the first such file is named.
    """
    manifest = read_manifest(folder)
    for problem in damages(folder, manifest):
        raise CheckpointError(f"{folder}: {problem}")
    return manifest


def damages(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Read every file of a checkpoint and yield what is wrong, one line a file."""
    expected = {SHARED_FILE, *(rank_file(rank) for rank in range(manifest.num_shards))}
    if missing := expected - manifest.files.keys():
        yield f"{MANIFEST_FILE} does not list {', '.join(sorted(missing))}"
    for name, entry in manifest.files.items():
        try:
            size, digest = _measure(folder / name)
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
            continue
        if size != entry.size:
            yield f"{name} has {size} bytes, not {entry.size}"
        elif digest != entry.sha256:
            yield f"{name} has another checksum than when it was written"


def newest_complete(checkpoints: Path) -> Iterator[tuple[Path, Manifest | CheckpointError]]:
    """Yield checkpoint folders from the newest on, damaged ones with what is wrong, up to the first complete one."""
    for iteration in iterations(checkpoints):
        folder = checkpoints / folder_name(iteration)
        try:
            manifest = verify(folder)
        except CheckpointError as error:
            yield folder, error
        else:
            yield folder, manifest
            return


def write_file(path: Path, data: bytes) -> FileEntry:
    """Write `data` and flush it to disk.

    Raises:
        OSError: it could not all be written.
    """
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


def sweep(checkpoints: Path) -> None:
    """Remove what an earlier attempt left half written; make the folder of checkpoints where there is none.

    Raises:
        OSError: it cannot be done.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    for leftover in checkpoints.glob(f"{_TEMPORARY}*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)


def publish(checkpoints: Path, manifest: Manifest) -> None:
    """Give the temporary folder, with all its files flushed, its name; then let `latest` point to it.

    Raises:
        OSError: it could not be done; earlier checkpoints are untouched.
    """
    temporary = checkpoints / temporary_name(manifest.iteration)
    final = checkpoints / folder_name(manifest.iteration)
    write_file(temporary / MANIFEST_FILE, manifest.dump().encode())
    sync_folder(temporary)
    replaced = checkpoints / f"{_TEMPORARY}replaced-{final.name}"
    if final.exists():  # damaged, or this attempt would have gone on from it
        final.rename(replaced)
    temporary.rename(final)
    sync_folder(checkpoints)
    link = checkpoints / f"{_TEMPORARY}{LATEST}"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(final.name)
    link.replace(checkpoints / LATEST)
    sync_folder(checkpoints)
    shutil.rmtree(replaced, ignore_errors=True)


def discard(checkpoints: Path, iteration: int) -> None:
    """Remove the temporary folder of a checkpoint that failed, as far as that is possible."""
    shutil.rmtree(checkpoints / temporary_name(iteration), ignore_errors=True)


def remove(checkpoints: Path, iteration: int) -> None:
    """Remove a checkpoint.

    Raises:
        OSError: it could not be removed.
    """
    # Renamed first, so that an interrupted removal never leaves a damaged checkpoint behind.
    doomed = checkpoints / f"{_TEMPORARY}pruned-{folder_name(iteration)}"
    (checkpoints / folder_name(iteration)).rename(doomed)
    shutil.rmtree(doomed)


def _measure(path: Path) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            digest.update(chunk)
    return size, digest.hexdigest()
