"""A job's kernels are kept on the node, where nobody else can have put them."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from hpclab.launch import kernel_cache
from hpclab.launch.kernel_cache import keep_on_node, turn_file
from hpclab.run_folder import RunFolder


@pytest.fixture
def folder() -> str:
    return f"hpclab-{getpass.getuser()}"


def test_slurms_scratch_goes_before_the_temporary_folder(tmp_path: Path, folder: str) -> None:
    variables = {"SLURM_JOB_ID": "1", "SLURM_TMPDIR": str(tmp_path / "job"), "TMPDIR": str(tmp_path / "tmp")}
    assert keep_on_node(variables) is None
    assert variables["WARP_CACHE_PATH"] == str(tmp_path / "job" / folder / "warp")
    assert oct((tmp_path / "job" / folder).stat().st_mode)[-3:] == "700"
    del variables["SLURM_TMPDIR"], variables["WARP_CACHE_PATH"]
    assert keep_on_node(variables) is None
    assert variables["WARP_CACHE_PATH"] == str(tmp_path / "tmp" / folder / "warp")


def test_without_either_it_is_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    made: list[Path] = []
    monkeypatch.setattr(kernel_cache, "private_folder", lambda path: made.append(path) or path)
    variables = {"SLURM_JOB_ID": "1", "TMPDIR": ""}
    keep_on_node(variables)
    assert made == [Path("/tmp") / folder]


@pytest.mark.parametrize("given", [{}, {"SLURM_JOB_ID": "1", "WARP_CACHE_PATH": "/mine"}])
def test_outside_a_job_and_where_the_user_decides_nothing_changes(given: dict[str, str]) -> None:
    variables = dict(given)
    assert keep_on_node(variables) is None
    assert variables == given


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, folder: str) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / folder).symlink_to(tmp_path / "theirs")
    variables = {"SLURM_JOB_ID": "1", "TMPDIR": str(tmp_path)}
    problem = keep_on_node(variables)
    assert problem is not None
    assert "is a link" in problem
    assert "WARP_CACHE_PATH" not in variables


def test_each_attempt_of_each_run_and_node_has_a_turn_of_its_own(tmp_path: Path, folder: str) -> None:
    variables = {"TMPDIR": str(tmp_path), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "SLURM_JOB_ID": "7"}
    run, other = RunFolder(Path("/runs/a")), RunFolder(Path("/runs/b"))
    files = [
        turn_file(run, 0, variables),
        turn_file(run, 1, variables),
        turn_file(other, 0, variables),
        turn_file(run, 0, variables | {"GROUP_RANK": "1"}),  # two pseudo-nodes of one machine
        turn_file(run, 0, variables | {"SLURM_JOB_ID": "8"}),
        turn_file(run, 0, variables | {"SLURM_RESTART_COUNT": "1"}),
    ]
    assert len(set(files)) == len(files)
    assert all(Path(file or "").parent == tmp_path / folder for file in files)
    assert turn_file(run, 0, variables) == files[0], "the same for every rank of the node"


def test_a_rank_alone_or_without_a_folder_of_its_own_waits_for_nobody(tmp_path: Path, folder: str) -> None:
    variables = {"TMPDIR": str(tmp_path), "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    assert turn_file(RunFolder(tmp_path), 0, variables) is None
    (tmp_path / folder).symlink_to(tmp_path)
    assert turn_file(RunFolder(tmp_path), 0, variables | {"LOCAL_WORLD_SIZE": "2"}) is None
