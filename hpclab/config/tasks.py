"""List the tasks by reading their files, without importing a simulator."""

from __future__ import annotations

import ast
from pathlib import Path

TASKS_FOLDER = Path(__file__).parents[1] / "envs" / "tasks"


def task_names(folder: Path = TASKS_FOLDER) -> dict[str, str]:
    """Return every task's name and the first line of its file's docstring, sorted by name.

    One file is one task: `g1_velocity_flat.py` is `g1-velocity-flat`.
    """
    files = sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))
    return {path.stem.replace("_", "-"): _summary(path) for path in files}


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]
