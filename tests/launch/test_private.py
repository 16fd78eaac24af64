from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import lock
from hpclab.launch.handover import Handover
from hpclab.launch.lock import Owner
from hpclab.launch.private import private_folder, refuse_others
from hpclab.run_folder import RunFolder, write_atomic


@pytest.fixture
def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written from here on belongs to another user than the one who looks."""
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)


def test_a_private_folder_is_made_and_an_open_one_is_closed(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o775)
    assert private_folder(made).stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("somebody_else")
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match=r"a: belongs to .* not trusted; choose another run\.name") as caught:
        private_folder(tmp_path / "a")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("somebody_else")
def test_a_lock_of_somebody_else_is_refused(run: RunFolder) -> None:
    run.lock.write_text("{}")
    with pytest.raises(ConfigError, match="lock: belongs to "):
        lock.acquire(run, Owner.this_process())


@pytest.mark.usefixtures("somebody_else")
def test_a_handover_of_somebody_else_is_refused(run: RunFolder) -> None:
    with pytest.raises(ConfigError, match="submitit: belongs to "):
        Handover.of(run, "11", 0)


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="is a link"):
        refuse_others(tmp_path / "link")


@pytest.mark.parametrize(("umask", "private", "mode"), [(0o022, False, 0o644), (0o077, False, 0o600), (0, True, 0o600)])
def test_written_files_follow_the_umask_unless_they_are_private(
    tmp_path: Path, umask: int, private: bool, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "file", "x", private=private)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
