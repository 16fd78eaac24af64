"""List the tasks by reading their files, without importing a simulator."""

from __future__ import annotations

import ast
from pathlib import Path

TASKS_FOLDER = Path(__file__).parents[1] / "envs" / "tasks"


def task_names(folder: Path = TASKS_FOLDER) -> dict[str, str]:
    """Return every task's name and the first line of its file's docstring, sorted by name.

    One file is one task: `g1_velocity_flat.py` is `g1-velocity-flat`. A file that cannot be read is one too, so that a
    task that somebody is writing is in nobody's way; its line says what is wrong. What Python could not import by its
    name (an editor's lock or backup) is none.
    """
    files = sorted(path for path in folder.glob("[!_]*.py") if path.stem.isidentifier() and path.is_file())
    return {path.stem.replace("_", "-"): _summary(path) for path in files}


def task_problem(name: str, folder: Path = TASKS_FOLDER) -> str | None:
    """Return why the file of the task `name` defines none, as far as reading it can tell."""
    path = folder / f"{name.replace('-', '_')}.py"
    module = _read(path)
    if isinstance(module, str):
        return module
    if _defined(module) & {"task", "*"}:
        return None
    return f"{path}: defines no function task()"


def _summary(path: Path) -> str:
    module = _read(path)
    docstring = f"cannot be read: {module}" if isinstance(module, str) else ast.get_docstring(module) or ""
    return docstring.partition("\n")[0]


def _read(path: Path) -> ast.Module | str:
    """Return the file's syntax tree, or what is wrong with the file."""
    try:
        return ast.parse(path.read_bytes())
    except OSError as error:
        return f"{path}: {error.strerror}"
    except SyntaxError as error:
        return f"{path}:{error.lineno or 1}: {error.msg}"
    except ValueError as error:
        return f"{path}: {error}"


def _defined(module: ast.Module) -> set[str]:
    """Return the names that a module defines or imports at its top level."""
    names: set[str] = set()
    for statement in module.body:
        match statement:
            case ast.FunctionDef(name=name):
                names.add(name)
            case ast.ImportFrom(names=imported):
                names |= {alias.asname or alias.name for alias in imported}
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
