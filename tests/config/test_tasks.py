from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.config.tasks import task_names, task_problem


def test_one_file_is_one_task_and_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "b_task.py").write_text('"""Do b.\n\nMore.\n"""\nraise RuntimeError\n')
    (tmp_path / "a.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "__init__.py").write_text('"""Not a task."""\n')
    assert task_names(tmp_path) == {"a": "", "b-task": "Do b."}
    assert list(task_names(tmp_path)) == ["a", "b-task"]


def test_a_file_that_somebody_is_writing_hides_no_other_task(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text('"""Do it."""\n')
    (tmp_path / "broken.py").write_text('"""Do more."""\n\ndef task(:\n')
    (tmp_path / "latin.py").write_bytes(b'"""caf\xe9"""\n')
    (tmp_path / "null.py").write_bytes(b"\0")
    (tmp_path / ".#whole.py").symlink_to("somebody@host.1234")  # Emacs' lock
    (tmp_path / "with-dashes.py").write_text('"""Python cannot import this."""\n')
    (tmp_path / "folder.py").mkdir()
    names = task_names(tmp_path)
    assert list(names) == ["broken", "latin", "null", "whole"]
    assert names["whole"] == "Do it."
    assert names["broken"] == f"cannot be read: {tmp_path / 'broken.py'}:3: invalid syntax"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def task(): ...\n", None),
        ("from other import flat as task\n", None),
        ("from other import *\n", None),
        ("task = partial(other, 3)\n", None),
        ("def make(): ...\n", ": defines no function task()"),
        ("class A:\n    def task(self): ...\n", ": defines no function task()"),
        ("def task(:\n", ":1: invalid syntax"),
        (None, ": No such file or directory"),
    ],
)
def test_a_file_that_defines_no_task_is_told_apart(tmp_path: Path, text: str | None, problem: str | None) -> None:
    path = tmp_path / "my_task.py"
    if text is not None:
        path.write_text(text)
    assert task_problem("my-task", tmp_path) == (problem and f"{path}{problem}")


def test_shipped_tasks_have_a_summary() -> None:
    tasks = task_names()
    assert {"cartpole-balance", "cartpole-swingup", "g1-velocity-flat"} <= set(tasks)
    assert all(tasks.values())
    assert [task_problem(name) for name in tasks] == [None] * len(tasks)
