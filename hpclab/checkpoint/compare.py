"""`hpclab checkpoint diff`: where two checkpoints differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.inspect import find
from hpclab.checkpoint.state import State, from_bytes
from hpclab.distributed.audit import leaves, name

_SHOWN = 10


def diff(one: Path, other: Path) -> bool:
    """Print what differs between two checkpoints (a run means its newest) and return whether anything does.

    Raises:
        ConfigError: one of them is no checkpoint.
        CheckpointError: one of them is damaged.
    """
    folders = [find(path)[0] for path in (one, other)]
    files = [disk.verify(folder).files for folder in folders]
    same = True
    for file in sorted(files[0].keys() | files[1].keys(), key=lambda file: (file != disk.SHARED_FILE, file)):
        missing = [folder for folder, held in zip(folders, files, strict=True) if file not in held]
        if missing:
            lines = [f"only in {next(folder for folder in folders if folder not in missing)}"]
        else:
            a, b = (from_bytes((folder / file).read_bytes(), str(folder / file)) for folder in folders)
            lines = differences(a, b)
        same = same and not lines
        for line in lines[:_SHOWN]:
            print(f"{file}: {line}")
        if len(lines) > _SHOWN:
            print(f"{file}: and {len(lines) - _SHOWN} more")
    if same:
        print("no difference in any bit")
    return not same


def differences(one: State, other: State) -> list[str]:
    """Return one line for each leaf that is not the same in both, bit for bit, in the order of the first."""
    a, b = ({name(path): leaf for path, leaf in leaves(state)} for state in (one, other))
    lines = []
    for path in [*a, *(path for path in b if path not in a)]:
        if path not in a or path not in b:
            lines.append(f"{path}: only in the {'first' if path in a else 'second'}")
        elif (line := _difference(a[path], b[path])) is not None:
            lines.append(f"{path}: {line}")
    return lines


def _difference(a: Any, b: Any) -> str | None:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return None if type(a) is type(b) and repr(a) == repr(b) else f"{_short(a)} and {_short(b)}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
    differs = (a.contiguous().reshape(-1, 1).view(torch.uint8) != b.contiguous().reshape(-1, 1).view(torch.uint8)).any(
        1
    )
    if not differs.any():
        return None
    first = tuple(int(index) for index in torch.unravel_index(differs.nonzero()[0, 0], a.shape))
    where = f" from {first} on" if first else ""
    largest = (a.double() - b.double()).abs().max().item()
    return f"{int(differs.sum())} of {a.numel()} numbers{where}, largest absolute difference {largest:.3g}"


def _short(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
