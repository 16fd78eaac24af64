from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.run_folder import RunFolder


def test_a_run_is_known_by_its_own_name_from_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "runs" / "a"
    (run / "checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to(run / "checkpoints")
    monkeypatch.chdir(run / "checkpoints")
    for given in ("..", "../", "../../a", "../../../runs/b/../a", "../../../link/..", str(run)):
        assert RunFolder.at(Path(given)) == RunFolder(run), given
    monkeypatch.chdir(run)
    assert RunFolder.at(Path()).name == "a"
    assert RunFolder.at(tmp_path / "link").path == tmp_path / "link"  # a link is a name as good as another


def test_a_run_is_one_argument_of_a_command() -> None:
    assert RunFolder(Path("/r/a b's")).argument == """'/r/a b'"'"'s'"""
    assert RunFolder(Path("/r/a")).argument == "/r/a"
