"""What a run reports: rank 0's own numbers, or those of all ranks; one collective an iteration for it."""

import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpclab.checkpoint.store import CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import CurriculumLevels, EpisodeTotals, Observations, Step
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from tests.distributed.ranks import run_on_ranks
from tests.runners.runs import small_config

CPU = torch.device("cpu")


class ScriptedEnv:
    """Two environments; every step is worth `reward`, the first ends its episode at every fourth step."""

    num_envs, num_actions, device, step_dt, max_episode_length = 2, 1, CPU, 0.02, 4

    def __init__(self, reward: float, warnings: dict[str, float], step_s: float = 0.0) -> None:
        self.step_s = step_s
        self.reward, self.warnings, self.steps, self.ended = reward, warnings, 0, 0
        self.observation_dims = {"actor": 1, "critic": 1}

    def observe(self) -> Observations:
        return {"actor": torch.zeros(2, 1), "critic": torch.zeros(2, 1)}

    def reset(self) -> Observations:
        return self.observe()

    def step(self, actions: Tensor) -> Step:
        self.steps += 1
        time.sleep(self.step_s)
        dones = torch.tensor([self.steps % 4 == 0, False])
        self.ended += int(dones.sum())
        return Step(self.observe(), torch.full((2,), self.reward), dones, torch.zeros(2, dtype=torch.bool))

    def capturing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read_episode_totals(self) -> EpisodeTotals:
        count, self.ended = self.ended, 0
        return EpisodeTotals(torch.tensor(count), {"Episode_Reward/term": torch.tensor(count * self.reward)})

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        return self.warnings

    def curriculum_levels(self) -> CurriculumLevels:
        level, count = torch.tensor(self.reward), torch.tensor(2.0 * self.reward)
        return CurriculumLevels({"Curriculum/a/mean": (level * count, count)}, {"Curriculum/a/max": level})

    def curriculum_statistics(self) -> Tensor:
        return torch.empty(0)

    def decide_curriculum(self, statistics: Tensor) -> None: ...

    def curriculum_state_dict(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def progress_state_dict(self) -> dict[str, Any]:
        return {}

    def load_progress_state_dict(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class StillAlgorithm:
    """Does nothing, and has a loss."""

    mean_std = torch.tensor(0.5)

    def broadcast_parameters(self) -> None: ...

    def start_rollout(self) -> None: ...

    def act(self, observations: Observations) -> Tensor:
        return torch.zeros(2, 1)

    def process_step(self, step: Step) -> None: ...

    def finish_rollout(self, observations: Observations) -> None: ...

    def update(self) -> dict[str, Tensor]:
        return {"value_loss": torch.tensor(0.25)}

    def act_inference(self, observations: Observations) -> Tensor:
        return torch.zeros(2, 1)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def shared_state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...

    def memory_state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_memory_state_dict(self, state: dict[str, Tensor]) -> None: ...


class Recorder:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None: ...


def records(collectives: Collectives, folder: Path, metrics: str) -> tuple[list[Record], int]:
    """Train three iterations of eight steps; rank r earns r + 1 a step. Return the records and collectives."""
    slow_s = 0.02 if collectives.rank == 1 else 0.0
    env = ScriptedEnv(collectives.rank + 1.0, {"bad_qpos": 3.0} if collectives.rank == 1 else {}, slow_s)
    config = small_config(run={"max_iterations": 3}, sync={"metrics": metrics})
    store = CheckpointStore(folder, collectives, config_sha256="c")
    runner = OnPolicyRunner(config, env, StillAlgorithm(), collectives, store, lambda: False)
    runner.resume()
    recorder = Recorder()
    before = collectives.counts["all_reduce"]
    runner.learn(Reporter([recorder]))
    return recorder.records, collectives.counts["all_reduce"] - before


def test_one_rank_reports_what_happened(tmp_path: Path) -> None:
    found, _ = records(Collectives(), tmp_path, "rank0")
    assert [record.iteration for record in found] == [0, 1, 2]
    assert [record.env_steps for record in found] == [16, 32, 48]
    values = found[0].values
    assert values["Train/mean_reward"] == 4.0
    assert values["Train/min_reward"] == values["Train/max_reward"] == 4.0
    assert values["Train/mean_episode_length"] == 4.0
    assert values["Episode_Reward/term"] == 1.0
    assert values["Loss/value_loss"] == 0.25
    assert values["Policy/mean_std"] == 0.5
    assert values["Perf/simulation_warnings"] == 0
    assert (values["Curriculum/a/mean"], values["Curriculum/a/max"]) == (1.0, 1.0)
    spent = values["Perf/collection_time"] + values["Perf/learning_time"]
    assert math.isclose(values["Perf/total_fps"], 16 / spent)
    assert not [tag for tag in values if "wait" in tag or "slowest" in tag], "one rank waits for nobody"


@pytest.mark.distributed
@pytest.mark.parametrize("metrics", ["rank0", "global"])
def test_two_ranks_report_rank_0s_numbers_or_those_of_all(metrics: str, tmp_path: Path) -> None:
    (first, collectives), _ = run_on_ranks(records, 2, tmp_path, metrics)
    values = first[-1].values
    of_all = metrics == "global"
    assert values["Train/mean_reward"] == (6.0 if of_all else 4.0)
    assert (values["Train/min_reward"], values["Train/max_reward"]) == (4.0, 8.0 if of_all else 4.0)
    assert values["Episode_Reward/term"] == (1.5 if of_all else 1.0)
    assert values["Perf/simulation_warnings"] == (3.0 if of_all else 0.0)
    assert values["Curriculum/a/mean"] == pytest.approx(10 / 6 if of_all else 1.0), (
        "2 environments and 4 of double the level"
    )
    assert values["Curriculum/a/max"] == (2.0 if of_all else 1.0)
    assert first[-1].env_steps == 3 * 8 * 4, "counted over all ranks in any case"
    for record in first:
        assert record.values["Perf/slowest_rank"] == 1.0
        assert record.values["Perf/wait_min"] == 0.0
        assert 0.1 < record.values["Perf/wait_max"] < 10.0, "eight steps of 0.02 s"
        assert record.values["Perf/wait_median"] == record.values["Perf/wait_max"] / 2
    assert collectives == 3, "one collective an iteration"
