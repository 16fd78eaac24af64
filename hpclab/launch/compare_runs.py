"""Compare what two runs have learned: `python -m hpclab.launch.compare_runs exact|counts CHECKPOINT CHECKPOINT`.

Prints one line of JSON: how many values were compared, and the paths of those that differ. A process of its own, so
that who asks need not load torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from hpclab.errors import CheckpointError

How = Literal["exact", "counts"]
"""exact: every bit of every value. counts: what must be equal where the physics is not reproducible, as on GPUs: the
counters, and the type and shape of every tensor."""

_TIMES = ("total_fps", "collection_time", "learning_time", "wait_min", "wait_median", "wait_max", "slowest_rank")
_UNREPEATABLE = ("time", "attempt", *(f"Perf/{name}" for name in _TIMES))
_TIMEOUT_S = 120.0


def compare_checkpoints(one: Path, other: Path, how: How) -> tuple[int, list[str]]:
    """Return how many values of two checkpoint folders were compared, and the paths of those that differ.

    Raises:
        CheckpointError: one of them could not be loaded.
    """
    command = [sys.executable, "-m", "hpclab.launch.compare_runs", how, str(one), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise CheckpointError(f"{one} and {other} could not be compared: {last}")
    result = json.loads(done.stdout.splitlines()[-1])
    return int(result["compared"]), list(result["different"])


def compare_curves(one: list[dict[str, Any]], other: list[dict[str, Any]], how: How) -> list[str]:
    """Return what differs between the lines of two metrics.jsonl, as `iteration 3: Loss/entropy`; times never count."""
    if len(one) != len(other):
        return [f"{len(one)} lines and {len(other)}"]
    differing = []
    for first, second in zip(one, other, strict=True):
        tags = first.keys() | second.keys() if how == "exact" else {"iteration", "env_steps"}
        differing += [
            f"iteration {first['iteration']}: {tag}"
            for tag in sorted(tags)
            if tag not in _UNREPEATABLE and first.get(tag, "absent") != second.get(tag, "absent")
        ]
    return differing


def main(how: str, one: Path, other: Path) -> None:
    import torch

    def load(folder: Path) -> dict[str, Any]:
        files = sorted(folder.glob("*.pt"))
        return {path.name: torch.load(path, map_location="cpu", weights_only=True) for path in files}

    values, others = dict(_leaves(load(one))), dict(_leaves(load(other)))
    prints = _print_exactly if how == "exact" else _print_counts
    paths = values.keys() | others.keys()
    different = [
        path
        for path in sorted(paths)
        if path not in values or path not in others or prints(path, values[path]) != prints(path, others[path])
    ]
    print(json.dumps({"compared": len(paths), "different": different}))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{path}/{key}" if path else str(key))
    else:
        yield path, value


def _print_exactly(path: str, value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):  # by its bytes: NaN equals itself, and -0 is not 0
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return str(value.dtype), tuple(value.shape), content
    return repr(value)


def _print_counts(path: str, value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape)
    return repr(value) if "/counters/" in path else type(value).__name__


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
