"""`hpclab checkpoint ls` and `verify`: what a run's checkpoints hold, and whether they are whole. No torch here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.folder import Manifest
from hpclab.checkpoint.retention import best_iteration
from hpclab.errors import CheckpointError, ConfigError
from hpclab.metrics.record import MEAN_REWARD

_HEADER = ("checkpoint", "written", "ranks", "environments", "size", "mean reward", "")


def find(path: Path) -> list[Path]:
    """Return the checkpoint folders that `path` means, newest first: itself, or those of a run.

    Raises:
        ConfigError: `path` is neither a checkpoint nor a run that has one.
    """
    if (path / disk.MANIFEST_FILE).is_file() or path.resolve().name.startswith("iter-"):
        if path.is_dir():
            return [path.resolve()]
        raise ConfigError(f"{path}: there is no such checkpoint")
    checkpoints = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    try:
        found = disk.iterations(checkpoints)
    except OSError as error:
        raise ConfigError(f"{checkpoints} cannot be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{path}: there is no checkpoint; name a run's folder or one like runs/g1/checkpoints/latest")
    return [checkpoints / disk.folder_name(iteration) for iteration in found]


def ls(path: Path) -> None:
    """Print the checkpoints of a run, or what is inside one.

    Raises:
        ConfigError: `path` is neither a checkpoint nor a run that has one.
        CheckpointError: the checkpoint has no readable manifest.
    """
    found = find(path)
    if found == [path.resolve()]:
        print("\n".join(_contents(found[0])))
    else:
        print("\n".join(_table(found)))


def verify(path: Path) -> None:
    """Read every file of the checkpoints that `path` means, and print which are whole.

    Raises:
        ConfigError: `path` is neither a checkpoint nor a run that has one.
        CheckpointError: some are damaged; every damaged file is named.
    """
    damaged = []
    for folder in find(path):
        try:
            manifest = disk.read_manifest(folder)
            problems = [f"{folder}: {problem}" for problem in disk.damages(folder, manifest)]
        except CheckpointError as error:
            problems = [str(error)]
        else:
            if not problems:
                size = _size(sum(entry.size for entry in manifest.files.values()))
                print(f"{folder.name}: whole, {len(manifest.files)} files, {size}")
        damaged += problems
    if damaged:
        raise CheckpointError("\n".join(damaged))


def _table(folders: list[Path]) -> list[str]:
    checkpoints = folders[0].parent
    link = checkpoints / disk.LATEST
    latest = link.readlink().name if link.is_symlink() else None
    best = best_iteration(checkpoints, MEAN_REWARD)
    rows: list[tuple[str, ...]] = [_HEADER]
    for folder in folders:
        try:
            manifest = disk.read_manifest(folder)
        except CheckpointError:
            rows.append((folder.name, "", "", "", "", "", "damaged: no readable manifest"))
            continue
        written = (folder / disk.MANIFEST_FILE).stat().st_mtime
        reward = manifest.metrics.get(MEAN_REWARD)
        marks = [mark for mark, on in (("latest", folder.name == latest), ("best", manifest.iteration == best)) if on]
        rows.append(
            (
                folder.name,
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written)),
                str(manifest.world_size) if manifest.num_shards else "imported",
                str(sum(manifest.num_envs)),
                _size(sum(entry.size for entry in manifest.files.values())),
                "" if reward is None else f"{reward:.2f}",
                ", ".join(marks),
            )
        )
    return _align(rows)


def _contents(folder: Path) -> list[str]:
    manifest = disk.read_manifest(folder)
    files = [(name, _size(entry.size), entry.sha256[:12]) for name, entry in sorted(manifest.files.items())]
    shapes = [(name, _shape(shape)) for name, shape in manifest.shapes.items()]
    return [
        f"{folder.name}: {manifest.iteration} iterations done, {_ranks(manifest)}",
        ", ".join(f"{package} {version}" for package, version in manifest.versions.items()),
        "",
        *_align(files),
        "",
        *_align(shapes),
    ]


def _ranks(manifest: Manifest) -> str:
    if manifest.num_shards == 0:
        return "the training state alone, imported"
    counts = sorted(set(manifest.num_envs))
    each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    ranks = "1 rank" if manifest.world_size == 1 else f"{manifest.world_size} ranks"
    kept = "" if manifest.num_shards == manifest.world_size else "; of the ranks' own state it has rank 0's alone"
    return f"{ranks} with {each} environments{kept}"


def _shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) if shape else "scalar"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:.1f} kB"


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
