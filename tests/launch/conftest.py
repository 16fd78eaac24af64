from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.run_folder import RunFolder

TINY = """\
task: cartpole-balance
run: {{root: {root}, name: tiny, max_iterations: 4, save_interval: 2}}
env: {{num_envs: 8}}
algorithm: {{num_steps_per_env: 8}}
actor: {{hidden_dims: [16]}}
critic: {{hidden_dims: [16]}}
sync: {{preset: global}}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A config whose run takes about a second of training, in `tmp_path`/runs/tiny."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.format(root=tmp_path / "runs"))
    return path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "tiny")
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a shell script in place of a program: `program(name, script)`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def install(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)

    return install
