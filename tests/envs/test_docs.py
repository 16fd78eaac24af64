"""The examples of the documents on tasks and terms run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpclab.config.tasks import task_names

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    (f"{path.stem}-{number}", code)
    for path in (DOCS / "tasks.md", DOCS / "terms.md")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_example_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "<document>", "exec"), names)
    if "task" in names:
        assert names["task"]().episode_length_s == 10.0  # type: ignore[operator]


def test_every_task_and_config_is_in_the_table() -> None:
    table = (DOCS / "tasks.md").read_text().partition("## ")[0]
    assert set(re.findall(r"`([a-z0-9-]+)`", table)) == set(task_names())
    assert set(re.findall(r"`([a-z0-9-]+\.yaml)`", table)) == {path.name for path in DOCS.parent.glob("configs/*.yaml")}
