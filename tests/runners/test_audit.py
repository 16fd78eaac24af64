"""The live audit passes what the sync settings keep equal, and ends or warns where a rank has gone astray."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpclab.algorithms.ppo import PPO
from hpclab.checkpoint.store import CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.errors import WorkerError
from hpclab.metrics.reporter import Reporter
from hpclab.run_folder import RunFolder
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.runners.outcome import Outcome
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.distributed.ranks import TestContext, run_on_ranks
from tests.runners.runs import attempt_on_ranks, small_config, write_config
from tests.runners.test_metrics import ScriptedEnv, StillAlgorithm

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_what_the_preset_keeps_equal_stays_equal(preset: str, tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(run={"audit_interval": 1}, sync={"preset": preset}))
    assert attempt_on_ranks(run, 2) == [Outcome("completed", 4, 4 * 128)] * 2
    assert "audit" not in run.rank_log(0, 0).read_text()


def astray_on_rank_1(run: RunFolder, context: TestContext) -> str:
    """Train two ranks; a single bit of one weight of rank 1's critic flips in iteration 2."""
    original, calls = PPO.update, [0]

    def update(ppo: PPO) -> dict[str, torch.Tensor]:
        losses = original(ppo)
        calls[0] += 1
        if calls[0] == 3 and context.rank == 1:
            with torch.no_grad():
                next(iter(ppo.critic.parameters())).view(-1)[:1].view(torch.int32).bitwise_xor_(1)
        return losses

    PPO.update = update
    spec = WorkerSpec(str(run.path), 0, ("cpu", "cpu"), console=False)
    place = WorkerContext(context.rank, context.rank, 2, 2, context.master_addr, context.master_port)
    return run_worker(spec, place).kind


def test_one_flipped_bit_is_named(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"audit_interval": 2, "audit": "warn"}
    run = write_config(tmp_path, small_config(run=settings))
    assert run_on_ranks(lambda context: astray_on_rank_1(run, context), 2, join_group=False) == ["completed"] * 2
    for rank in (0, 1):
        log = run.rank_log(0, rank).read_text()
        assert "audit after iteration 1" not in log
        assert "audit after iteration 3: training state differs between ranks: critic/" in log
        assert "on rank 1 of 2" in log


class AstrayAlgorithm(StillAlgorithm):
    def __init__(self, rank: int) -> None:
        self.rank, self.updates = rank, 0

    def update(self) -> dict[str, torch.Tensor]:
        self.updates += 1
        return super().update()

    def shared_state_dict(self) -> dict[str, Any]:
        return {"weights": torch.full((3,), float(self.rank and self.updates > 2)), "rate": 1e-3}


def ended(collectives: Collectives, folder: Path, interval: int | None) -> tuple[str, int]:
    config = small_config(run={"max_iterations": 6, "save_interval": 1, "audit_interval": interval})
    store = CheckpointStore(folder, collectives, config_sha256="c")
    algorithm = AstrayAlgorithm(collectives.rank)
    runner = OnPolicyRunner(config, ScriptedEnv(1.0, {}), algorithm, collectives, store, lambda: False)
    runner.resume()
    try:
        runner.learn(Reporter())
    except WorkerError as error:
        return str(error), runner.iteration
    return "", runner.iteration


def test_a_difference_ends_the_run_on_every_rank_before_it_is_saved(tmp_path: Path) -> None:
    first, second = run_on_ranks(ended, 2, tmp_path, 2)
    assert first == second
    assert first[0].startswith("audit after iteration 3: training state differs between ranks: weights, on rank 1 of 2")
    assert first[1] == 4
    assert not (tmp_path / "iter-000004").exists()
    assert run_on_ranks(ended, 2, tmp_path / "off", None) == [("", 6)] * 2
