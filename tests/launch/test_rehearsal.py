from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpclab.launch import rehearsal
from hpclab.launch.plan import make_plan
from hpclab.launch.rehearsal import examine, scaled_down
from hpclab.run_folder import RunFolder
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
    assert (small.config.env.num_envs, small.config.algorithm.num_steps_per_env) == (8, 8)
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


def test_a_run_that_may_not_be_requeued_is_rehearsed_all_the_same(tiny: Path, tmp_path: Path) -> None:
    plan = make_plan(tiny, ["slurm.requeue.preempted=0"], num_nodes=2, workers_per_node=1)
    small, _ = scaled_down(plan, tmp_path)
    assert small.config.slurm.requeue.preempted == "unlimited"


def test_every_check_fails_on_an_empty_run(tiny: Path, tmp_path: Path) -> None:
    small, _ = scaled_down(make_plan(tiny, [], num_nodes=2, workers_per_node=1), tmp_path)
    checks = list(examine(small, RunFolder(tmp_path / "uninterrupted"), noticed=None, total=None))
    passed = [check.what for check in checks if check.passed]
    assert passed == ["no process is left"]
    assert len(checks) == 13


def test_on_gpus_the_table_says_what_is_compared(tiny: Path, tmp_path: Path) -> None:
    small, _ = scaled_down(make_plan(tiny, [], num_nodes=2, workers_per_node=1), tmp_path)
    checks = examine(replace(small, use_gpus=True), RunFolder(tmp_path / "other"), noticed=None, total=None)
    names = [check.what for check in checks]
    assert "checkpoints of both have equal counters and shapes (GPU physics is not repeatable)" in names
    assert "curves have the same iterations and steps" in names


@pytest.mark.distributed
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rehearsal_passes_and_cleans_up(nodes: int, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    arguments = ("submit", tiny, "--nodes", nodes, "--workers-per-node", 3 - nodes, "--dry-run")
    with hpclab(*arguments, TMPDIR=str(tmp_path / "tmp"), COLUMNS="200") as process:
        code, output = finish(process)
    assert code == 0, output
    assert output.count(" ok ") == 13
    assert "preempted, completed" in output
    assert "equal bit for bit" in output
    assert [path.name for path in (tmp_path / "tmp").rglob("*")] == [f"hpclab-{getpass.getuser()}"]
    assert not (tmp_path / "runs").exists()
