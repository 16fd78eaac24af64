"""Checksums of a folder's files, and large files in parts."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 2**20
SUMS = "SHA256SUMS"
"""Of every file as it travels."""
JOINED_SUMS = "SHA256SUMS.joined"
"""Of every file that travels in parts, whole again."""


def split_and_sum(folder: Path, part_bytes: int | None) -> None:
    """Split wheels larger than `part_bytes`, and write the checksums of everything.

    The parts of FILE are FILE.part-000 and so on, in the order of their names.
    """
    joined = []
    for path in sorted((folder / "wheels").iterdir()):
        if part_bytes is not None and path.stat().st_size > part_bytes:
            joined.append(_line(path, path.name))
            _split(path, part_bytes)
    (folder / JOINED_SUMS).write_text("".join(joined))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_text("".join(_line(path, str(path.relative_to(folder))) for path in files))


def _split(path: Path, part_bytes: int) -> None:
    with path.open("rb") as whole:
        number = 0
        while whole.peek(1):
            with path.with_name(f"{path.name}.part-{number:03d}").open("wb") as part:
                left = part_bytes
                while left and (data := whole.read(min(_BLOCK, left))):
                    part.write(data)
                    left -= len(data)
            number += 1
    path.unlink()


def _line(path: Path, name: str) -> str:
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {name}\n"
