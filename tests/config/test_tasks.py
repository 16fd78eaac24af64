from __future__ import annotations

from pathlib import Path

from hpclab.config.tasks import task_names


def test_one_file_is_one_task_and_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "b_task.py").write_text('"""Do b.\n\nMore.\n"""\nraise RuntimeError\n')
    (tmp_path / "a.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "__init__.py").write_text('"""Not a task."""\n')
    assert task_names(tmp_path) == {"a": "", "b-task": "Do b."}
    assert list(task_names(tmp_path)) == ["a", "b-task"]


def test_shipped_tasks_have_a_summary() -> None:
    tasks = task_names()
    assert {"cartpole-balance", "cartpole-swingup", "g1-velocity-flat"} <= set(tasks)
    assert all(tasks.values())
