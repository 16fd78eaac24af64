"""Two runs are compared bit for bit, or by what must be equal when the physics is not repeatable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hpclab.errors import CheckpointError
from hpclab.launch.compare_runs import compare_checkpoints, compare_curves


def checkpoint(folder: Path, weight: list[float], *, iteration: int = 6, rank: int = 1) -> Path:
    folder.mkdir()
    shared: dict[str, Any] = {"algorithm": {"weight": torch.tensor(weight)}, "counters": {"iteration": iteration}}
    torch.save(shared, folder / "shared.pt")
    torch.save({"streams": [torch.tensor(rank), "numpy"]}, folder / "rank-0000.pt")
    return folder


def test_nan_equals_itself_and_zero_has_a_sign(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", [0.0, float("nan")])
    same = checkpoint(tmp_path / "same", [0.0, float("nan")])
    other = checkpoint(tmp_path / "other", [-0.0, float("nan")], rank=2)
    assert compare_checkpoints(one, same, "exact") == (4, [])
    assert compare_checkpoints(one, other, "exact") == (4, ["rank-0000.pt/streams/0", "shared.pt/algorithm/weight"])


def test_by_counts_values_may_differ_but_not_counters_and_shapes(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "one", [1.0])
    assert compare_checkpoints(one, checkpoint(tmp_path / "values", [2.0]), "counts") == (4, [])
    late = checkpoint(tmp_path / "late", [1.0], iteration=7)
    assert compare_checkpoints(one, late, "counts")[1] == ["shared.pt/counters/iteration"]
    wide = checkpoint(tmp_path / "wide", [1.0, 2.0])
    assert compare_checkpoints(one, wide, "counts")[1] == ["shared.pt/algorithm/weight"]


def test_a_checkpoint_that_does_not_load_is_said(tmp_path: Path) -> None:
    one, torn = checkpoint(tmp_path / "one", [1.0]), checkpoint(tmp_path / "torn", [1.0])
    (torn / "shared.pt").write_bytes((torn / "shared.pt").read_bytes()[:100])
    with pytest.raises(CheckpointError, match="could not be compared"):
        compare_checkpoints(one, torn, "exact")


def test_curves_differ_in_values_or_only_in_steps() -> None:
    line = {"iteration": 0, "env_steps": 64, "time": 1.0, "attempt": 0, "Loss/entropy": 0.5}
    assert compare_curves([line], [line | {"time": 2.0, "attempt": 1}], "exact") == []
    assert compare_curves([line], [line | {"Loss/entropy": 0.6}], "exact") == ["iteration 0: Loss/entropy"]
    assert compare_curves([line], [line | {"Loss/entropy": 0.6}], "counts") == []
    assert compare_curves([line], [line | {"env_steps": 65}], "counts") == ["iteration 0: env_steps"]
    assert compare_curves([line], [], "exact") == ["1 lines and 0"]
