from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.launch import rehearsal
from hpclab.launch.plan import make_plan
from hpclab.launch.rehearsal import examine, scaled_down
from tests.launch.commands import finish, hpclab


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal.os, "sched_getaffinity", lambda pid: {0, 1})


@pytest.mark.usefixtures("two_cores")
def test_missing_gpus_become_cpu_workers_and_that_is_said(
    tiny: Path, tmp_path: Path, program: Callable[[str, str], None]
) -> None:
    program("nvidia-smi", "exit 1")
    small, notes = scaled_down(make_plan(tiny, [], num_nodes=4, gpus_per_node=8), tmp_path)
    assert (small.num_nodes, small.workers_per_node, small.use_gpus) == (2, 1, False)
    assert notes[0] == "GPUs are asked for, but none for 2 nodes are here: CPU workers in their place"
    assert notes[1] == "4 x 8 workers are asked for; this machine rehearses with 2 x 1"
    assert small.config.run.max_iterations == 3
    assert small.run.path == tmp_path / "rehearsal"


@pytest.mark.usefixtures("two_cores")
def test_gpus_are_shared_by_the_pseudo_nodes(
    tiny: Path, tmp_path: Path, program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program("nvidia-smi", "for i in 0 1 2 3 4; do echo GPU $i: X; done")
    small, notes = scaled_down(make_plan(tiny, [], num_nodes=2, gpus_per_node=8), tmp_path)
    assert (small.num_nodes, small.workers_per_node, small.use_gpus) == (2, 2, True)
    assert notes == ["2 x 8 workers are asked for; this machine rehearses with 2 x 2"]


def test_global_environments_still_fill_the_mini_batches(tiny: Path, tmp_path: Path) -> None:
    plan = make_plan(tiny, ["env.num_envs_scope=global", "env.num_envs=64"], num_nodes=2, workers_per_node=2)
    small, _ = scaled_down(plan, tmp_path)
    assert small.config.env.num_envs == 8 * small.world_size


def test_every_check_fails_on_an_empty_run(tiny: Path, tmp_path: Path) -> None:
    small, _ = scaled_down(make_plan(tiny, [], num_nodes=2, workers_per_node=1), tmp_path)
    failed = [check.what for check in examine(small) if not check.passed]
    assert failed == [
        "configuration is valid", "run folder is written", "2 agents started", "2 ranks trained",
        "3 iterations done", "metrics are written", "checkpoint is complete and loads",
    ]  # fmt: skip


@pytest.mark.distributed
def test_a_rehearsal_passes_and_cleans_up(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    arguments = ("submit", tiny, "--nodes", 2, "--workers-per-node", 1, "--dry-run")
    with hpclab(*arguments, TMPDIR=str(tmp_path / "tmp"), COLUMNS="200") as process:
        code, output = finish(process)
    assert code == 0, output
    assert output.count(" ok ") == 8
    assert list((tmp_path / "tmp").glob("hpclab-*")) == []
    assert not (tmp_path / "runs").exists()
