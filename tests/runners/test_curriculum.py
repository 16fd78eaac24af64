"""Whose statistics a curriculum decides from, by `sync.curriculum`: two ranks, the same task, three answers."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hpclab.checkpoint.store import CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import Curriculum, Term
from hpclab.envs.tasks import load_task
from hpclab.errors import WorkerError
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from tests.distributed.ranks import run_on_ranks
from tests.runners.runs import small_config
from tests.runners.test_metrics import StillAlgorithm

pytestmark = pytest.mark.distributed
CPU = torch.device("cpu")


class Tally(Curriculum):
    """Counts `amount` a step, and the environments that it watches; adds what it is given to its level."""

    def __init__(self, env: ManagerEnv, *, amount: int) -> None:
        self.amount = amount
        self.statistics = env.buffers.shared("tally/statistics", 2)
        self.level = env.buffers.shared("tally/level", 2)

    def step(self, ended: Tensor) -> None:
        assert self.statistics is not None
        self.statistics += torch.tensor([float(self.amount), float(len(ended))])

    def decide(self, statistics: Tensor) -> None:
        self.level += statistics

    def state(self) -> Mapping[str, Tensor]:
        return {"level": self.level}


def env_with(amount: int) -> ManagerEnv:
    task = load_task("cartpole-balance")
    task = dataclasses.replace(task, curriculum={"tally": Term(Tally, {"amount": amount})})
    return ManagerEnv("cartpole-balance", task, make_sim(task.model(), 2, device=CPU, num_substeps=task.decimation))


def decided(collectives: Collectives, folder: Path, source: str) -> tuple[list[float], list[float], int]:
    """Train three iterations of eight steps; rank r counts r + 1 a step. Return its level and what it would save."""
    env = env_with(collectives.rank + 1)
    config = small_config(run={"max_iterations": 3, "audit_interval": 1}, sync={"curriculum": source})
    store = CheckpointStore(folder, collectives, config_sha256="c")
    runner = OnPolicyRunner(config, env, StillAlgorithm(), collectives, store, lambda: False)
    runner.resume()
    before = collectives.counts["all_reduce"]
    runner.learn(Reporter())
    assert env.curriculum_statistics().tolist() == [0.0, 0.0], "counted anew after each decision"
    level = env.curriculum_state_dict()["tally"]["level"].tolist()
    return level, env.progress_state_dict()["tally/level"].tolist(), collectives.counts["all_reduce"] - before


@pytest.mark.parametrize(
    ("source", "levels"),
    [
        ("local", [[24.0, 48.0], [48.0, 48.0]]),
        ("rank0", [[24.0, 48.0], [24.0, 48.0]]),
        ("global", [[72.0, 96.0], [72.0, 96.0]]),
    ],
)
def test_two_ranks_decide_alone_as_rank_0_or_together(source: str, levels: list[list[float]], tmp_path: Path) -> None:
    results = run_on_ranks(decided, 2, tmp_path, source)
    assert [level for level, _, _ in results] == levels
    assert [saved for _, saved, _ in results] == levels, "a checkpoint holds the decision"
    assert [collectives for *_, collectives in results] == [3, 3], "no collective of its own"


def test_one_rank_decides_alone_whatever_the_setting(tmp_path: Path) -> None:
    for source in ("local", "rank0", "global"):
        assert decided(Collectives(), tmp_path / source, source)[0] == [24.0, 48.0]


def audited(collectives: Collectives, folder: Path, source: str) -> str:
    env = env_with(1)
    config = small_config(run={"max_iterations": 2, "audit_interval": 1}, sync={"curriculum": source})
    runner = OnPolicyRunner(
        config, env, StillAlgorithm(), collectives, CheckpointStore(folder, collectives, config_sha256="c"), bool
    )
    runner.resume()
    env.curriculum_state_dict()["tally"]["level"].fill_(float(collectives.rank))
    try:
        runner.learn(Reporter())
    except WorkerError as error:
        return str(error)
    return ""


def test_the_audit_compares_curricula_that_decide_together(tmp_path: Path) -> None:
    first, _ = run_on_ranks(audited, 2, tmp_path, "global")
    assert "training state differs between ranks: curriculum/tally/level, on rank 1 of 2" in first
    assert run_on_ranks(audited, 2, tmp_path, "local") == ["", ""]
