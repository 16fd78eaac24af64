"""A job's kernels are kept on the node, where nobody else can have put them."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from hpclab.launch import node_scratch
from hpclab.launch.kernel_cache import keep_on_node, turn_file
from hpclab.launch.node_scratch import temporary_folder


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
    monkeypatch.setattr(node_scratch, "private_folder", lambda path: made.append(path) or path)
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


def test_a_nodes_ranks_have_one_turn_where_no_others_can_be(tmp_path: Path) -> None:
    variables = {"TMPDIR": str(tmp_path), "LOCAL_WORLD_SIZE": "2"}
    assert turn_file(variables) is None, "others write there too"
    with temporary_folder(variables):
        assert turn_file(variables) == f"{variables['TMPDIR']}/kernels"
        assert turn_file(variables | {"LOCAL_WORLD_SIZE": "1"}) is None, "a rank that is alone waits for nobody"
