"""What `hpclab checkpoint` says of whole, damaged and different checkpoints."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from hpclab.checkpoint.compare import differences
from hpclab.cli import main
from tests.checkpoint.test_store import flip, save


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["checkpoint", *arguments])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out, captured.err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for iteration, reward in ((50, 1.5), (100, 9.25), (150, 3.0)):
        save(tmp_path / "g1" / "checkpoints", iteration, **{"Train/mean_reward": reward})
    return tmp_path / "g1"


def test_ls_lists_a_run_newest_first(saved: Path, capsys) -> None:
    (saved / "checkpoints" / "iter-000050" / "manifest.json").write_text("{")
    code, out, _ = run(capsys, "ls", str(saved))
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["checkpoint", "iter-000150", "iter-000100", "iter-000050"]
    assert lines[1].endswith("3.00         latest")
    assert lines[2].endswith("9.25         best")
    assert "damaged" in lines[3]


def test_ls_shows_what_is_inside_one(saved: Path, capsys) -> None:
    for path in ("iter-000150", "latest"):
        code, out, _ = run(capsys, "ls", str(saved / "checkpoints" / path))
        assert code == 0
        assert out.startswith("iter-000150: 150 iterations done, 1 rank with 4 environments\n")
        assert f"torch {version('torch')}" in out
        assert "weights  3" in out
        assert [line.split()[0] for line in out.splitlines() if ".pt" in line] == ["rank-0000.pt", "shared.pt"]


def test_verify_names_every_damaged_file(saved: Path, capsys) -> None:
    assert run(capsys, "verify", str(saved))[0] == 0
    folder = saved / "checkpoints" / "iter-000100"
    flip(folder / "shared.pt")
    (folder / "rank-0000.pt").unlink()
    code, out, err = run(capsys, "verify", str(saved))
    assert code == 5
    assert [line.split(":")[0] for line in out.splitlines()] == ["iter-000150", "iter-000050"]
    assert "iter-000100: shared.pt has another checksum" in err
    assert "iter-000100: rank-0000.pt cannot be read: No such file" in err
    assert len(err.splitlines()) == 2
    assert run(capsys, "verify", str(folder))[0] == 5


def test_diff_says_where_and_how_far(saved: Path, capsys) -> None:
    checkpoints = saved / "checkpoints"
    code, out, _ = run(capsys, "diff", str(checkpoints / "iter-000050"), str(saved))
    assert code == 1
    assert out.splitlines() == [
        "shared.pt: weights: 3 of 3 numbers from (0,) on, largest absolute difference 100",
        "rank-0000.pt: state: 3 of 3 numbers from (0,) on, largest absolute difference 200",
    ]
    code, out, _ = run(capsys, "diff", str(checkpoints / "latest"), str(checkpoints / "iter-000150"))
    assert (code, out) == (0, "no difference in any bit\n")


def test_leaves_differ_by_bits_shapes_types_and_presence() -> None:
    nan, zero = float("nan"), torch.zeros(2, 2)
    moved = zero.clone()
    moved[1, 0] = 1e-3
    one = {"w": zero, "n": torch.tensor(nan), "m": 1, "b": torch.tensor([True]), "s": torch.zeros(2), "gone": 0}
    other = {"w": moved, "n": torch.tensor(nan), "m": True, "b": torch.tensor([False]), "s": torch.zeros(3), "new": 0}
    assert differences(one, one) == []
    assert differences(one, other) == [
        "w: 1 of 4 numbers from (1, 0) on, largest absolute difference 0.001",
        "m: 1 and True",
        "b: 1 of 1 numbers from (0,) on, largest absolute difference 1",
        "s: torch.float32 (2,) and torch.float32 (3,)",
        "gone: only in the first",
        "new: only in the second",
    ]


@pytest.mark.parametrize("command", ["ls", "verify"])
@pytest.mark.parametrize("path", ["", "iter-000001", "checkpoints/iter-000001"])
def test_what_is_no_checkpoint_is_said_so(command: str, path: str, tmp_path: Path, capsys) -> None:
    code, out, err = run(capsys, command, str(tmp_path / path))
    assert (code, out) == (2, "")
    assert "there is no" in err


def test_looking_needs_no_torch() -> None:
    code = "import sys, hpclab.checkpoint.inspect; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
