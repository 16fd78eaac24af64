"""A run goes on with another number of ranks: training state exact, environments dealt anew."""

import copy
from pathlib import Path
from typing import Any

import pytest

from hpclab.run_folder import RunFolder
from hpclab.runners.outcome import Outcome
from hpclab.runners.training_state import TrainingState
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.distributed.ranks import TestContext, run_on_ranks
from tests.runners.runs import attempt_on_ranks, checkpoint_files, curve, differences, small_config, write_config

pytestmark = pytest.mark.distributed


def resumed(run: RunFolder, world_size: int, context: TestContext) -> dict[str, Any]:
    """Resume with `world_size` ranks for one iteration; return the state of this rank before it."""
    taken: dict[str, Any] = {}
    original = TrainingState.restore

    def restore(self: TrainingState, checkpoint: Any) -> None:
        original(self, checkpoint)
        taken["initial"] = copy.deepcopy(self.algorithm.state_dict())
        taken["environment"] = self.env.state_dict()
        taken["memory"] = self.algorithm.memory_state_dict()["actor/0"][0].tolist()

    TrainingState.restore = restore
    spec = WorkerSpec(str(run.path), 1, ("cpu",) * world_size, console=False)
    place = WorkerContext(context.rank, context.rank, world_size, world_size, context.master_addr, context.master_port)
    taken["outcome"] = run_worker(spec, place if world_size > 1 else WorkerContext.single())
    return taken


def rows(files: dict[str, Any], rank: int) -> list[list[float]]:
    return files[f"rank-{rank:04d}.pt"]["environment"]["sim"]["integration"].tolist()


@pytest.mark.parametrize(("world_size", "scope"), [(2, "per_rank"), (1, "global"), (8, "per_rank"), (3, "global")])
def test_saved_by_4_ranks_and_resumed_by_others(world_size: int, scope: str, tmp_path: Path) -> None:
    env = {"num_envs": 2 if scope == "per_rank" else 8, "num_envs_scope": scope}

    def config(max_iterations: int) -> Any:
        actor = {"rnn": {"type": "gru", "hidden_dim": 4}}
        return small_config(run={"max_iterations": max_iterations}, env=env, actor=actor, sync={"preset": "global"})

    run = write_config(tmp_path, config(2))
    attempt_on_ranks(run, 4)
    files = checkpoint_files(run, 2)
    saved = [row for rank in range(4) for row in rows(files, rank)]
    assert len(saved) == 8

    write_config(tmp_path, config(3))
    states = run_on_ranks(lambda context: resumed(run, world_size, context), world_size, join_group=False)
    envs = 2 * world_size if scope == "per_rank" else 8
    assert [state["outcome"] for state in states] == [Outcome("completed", 3, 2 * 8 * 8 + envs * 8)] * world_size
    dealt = [row for state in states for row in state["environment"]["sim"]["integration"].tolist()]
    assert len(dealt) == envs
    assert dealt[:8] == saved[:envs]
    remembered = [row for rank in range(4) for row in files[f"rank-{rank:04d}.pt"]["memory"]["actor/0"][0].tolist()]
    memory = [row for state in states for row in state["memory"]]
    assert memory == remembered[:envs] + [[0.0] * 4] * (envs - 8)
    assert any(memory[0])
    assert len({tuple(row) for row in dealt}) == envs, "what starts anew repeats nothing"
    assert {state["environment"]["buffers"]["step_count"].item() for state in states} == {16}, "progress is the run's"
    assert [line["iteration"] for line in curve(run)] == [0, 1, 2]
    log = run.rank_log(1, world_size - 1).read_text()
    left_out, new = max(0, 8 - envs), max(0, envs - 8)
    assert f"4 ranks saved it, {world_size} go on" in log
    assert f"over all ranks {min(8, envs)} continue, {new} start anew, {left_out} of the checkpoint are left out" in log
    for state in states:
        assert differences(files["shared.pt"]["algorithm"], state["initial"]) == []
