"""A launch's temporary files are its own, and go when it ends, however it ends."""

from __future__ import annotations

import getpass
import subprocess
import sys
from pathlib import Path

import pytest

from hpclab.launch.node_scratch import OWN_TMPDIR, temporary_folder

HOLD = """
import sys
from hpclab.launch.node_scratch import temporary_folder
with temporary_folder(variables := {"TMPDIR": sys.argv[1]}):
    print(variables["TMPDIR"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / f"hpclab-{getpass.getuser()}"


def test_it_is_new_and_goes_with_all_that_is_in_it(tmp_path: Path, own: Path) -> None:
    variables = {"TMPDIR": str(tmp_path)}
    with temporary_folder(variables):
        folder = Path(variables["TMPDIR"])
        assert variables[OWN_TMPDIR] == variables["TMPDIR"]
        assert (folder.parent, oct(folder.stat().st_mode)[-3:]) == (own, "700")
        (folder / "none_abc" / "attempt_0").mkdir(parents=True)
        (folder / "kernels").touch()
    assert list(own.iterdir()) == []


def test_only_what_a_killed_launch_left_is_removed_by_the_next(tmp_path: Path, own: Path) -> None:
    (own / "warp").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        (theirs / "file").touch()
        with temporary_folder(mine := {"TMPDIR": str(tmp_path)}):
            assert {path.name for path in own.iterdir()} == {theirs.name, Path(mine["TMPDIR"]).name, "warp"}
        other.kill()
    assert (theirs / "file").exists()
    with temporary_folder({"TMPDIR": str(tmp_path)}):
        assert not theirs.exists()
    assert [path.name for path in own.iterdir()] == ["warp"]


def test_where_none_can_be_made_all_stays(tmp_path: Path, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.symlink_to(tmp_path)
    variables = {"TMPDIR": str(tmp_path)}
    with temporary_folder(variables):
        assert variables == {"TMPDIR": str(tmp_path)}
    assert "temporary files stay where those of others are" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [own]
