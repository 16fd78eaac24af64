"""tools/run, with a Python that only pretends to make an environment and to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Its `-m venv DIR` makes an environment whose python is itself; its `pip install` takes a while and is written down.
PYTHON = """#!/bin/bash
case "$*" in
  *version_info*) exit ${TOO_OLD:-0};;
  -V) echo Python 3.0;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
  "-m pip --version") ;;
  "-m pip install "*)
    sleep 0.3; echo "$*" >>"$(dirname "$0")/../../installs.txt"
    [ -n "$FAIL" ] && { echo no network >&2; exit 1; }
    printf '#!/bin/bash\\npwd; printf "<%%s>" "$@"\\n' >"$(dirname "$0")/hpclab"; chmod +x "$(dirname "$0")/hpclab";;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project's tools, and a pretended Python."""
    project = tmp_path / "a project"
    shutil.copytree(ROOT / "tools", project / "tools", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, project)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return project


def start(project: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHON": str(project.parent / "python"), **variables}
    return subprocess.Popen(
        [str(project / "tools" / "run"), *arguments],
        cwd=project.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(project: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error."""
    process = start(project, *arguments, **variables)
    output, error = process.communicate(timeout=60)
    return process.returncode, output, error


def installs(project: Path) -> list[str]:
    file = project / "installs.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_it_installs_once_and_runs_in_the_callers_folder(project: Path) -> None:
    code, output, error = run(project, "train", "a b", "")
    assert (code, output) == (0, f"{project.parent}\n<train><a b><>")
    assert "making" in error
    assert "installing" in error
    assert len(installs(project)) == 1
    assert f"-c {project}/constraints.txt -e {project}" in installs(project)[0]

    assert run(project, "x") == (0, f"{project.parent}\n<x>", "")
    assert len(installs(project)) == 1


def test_it_installs_again_when_what_is_pinned_changes(project: Path) -> None:
    run(project)
    with (project / "constraints.txt").open("a") as file:
        file.write("x==1\n")
    assert "installing" in run(project)[2]
    assert len(installs(project)) == 2


def test_two_at_once_install_once(project: Path) -> None:
    processes = [start(project, str(number)) for number in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == [f"{project.parent}\n<{number}>" for number in range(3)]
    assert len(installs(project)) == 1


def test_a_link_to_it_works(project: Path) -> None:
    link = project.parent / "link"
    link.symlink_to(project / "tools" / "run")
    environment = {**os.environ, "PYTHON": str(project.parent / "python")}
    done = subprocess.run(
        [str(link), "x"], cwd="/", env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "/\n<x>"


def test_a_failed_installation_is_tried_again(project: Path) -> None:
    code, output, error = run(project, FAIL="1")
    assert (code, output) == (1, "")
    assert "pip failed" in error
    assert run(project)[0] == 0
    assert len(installs(project)) == 2


def test_an_old_python_is_one_line(project: Path) -> None:
    code, output, error = run(project, TOO_OLD="1")
    assert (code, output) == (2, "")
    assert error.startswith("hpclab: needs Python 3.11 or newer, and ")
    assert "is Python 3.0." in error
    assert error.count("\n") == 1


def test_a_missing_python_is_one_line(project: Path) -> None:
    code, _, error = run(project, PYTHON="/nowhere/python")
    assert code == 2
    assert error.startswith("hpclab: needs Python 3.11 or newer, and there is no /nowhere/python.")
    assert error.count("\n") == 1
