"""A job goes on with the code that it was submitted with, whatever happens to the checkout afterwards."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

import hpclab as package
from hpclab.run_folder import RunFolder
from tests.launch.commands import TIMEOUT_S, finish, hpclab, iterations


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of its own, which `variables` makes the command import from."""
    tree = tmp_path / "my project"
    source = Path(package.__file__).parent
    shutil.copytree(source, tree / "hpclab", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return tree


@pytest.mark.parametrize("snapshot", [True, False])
def test_editing_after_submission_changes_nothing(checkout: Path, tiny: Path, run: RunFolder, snapshot: bool) -> None:
    run.path.rmdir()
    options = ["--local", "--nodes", "1", "--workers-per-node", "1"] + ([] if snapshot else ["--no-snapshot"])
    variables = {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    with hpclab("submit", tiny, *options, **variables) as process:
        end = time.monotonic() + TIMEOUT_S
        while not (run.code if snapshot else run.manifest).exists():
            assert process.poll() is None, finish(process)
            assert time.monotonic() < end
            time.sleep(0.002)
        # Long before the ranks import it: torch comes first.
        (checkout / "hpclab" / "worker" / "main.py").write_text("raise RuntimeError('edited')\n")
        code, said = finish(process)
    if snapshot:
        assert code == 0, said
        assert iterations(run) == [0, 1, 2, 3]
    else:
        assert code == 4, said
        assert "edited" in said
