from __future__ import annotations

import pytest
from pydantic import ValidationError

from hpclab.config.schema import SYNC_PRESETS, RunConfig, SyncSection


def test_a_config_is_frozen() -> None:
    config = RunConfig(task="cartpole-balance")
    with pytest.raises(ValidationError):
        config.env.num_envs = 3  # type: ignore[misc]


@pytest.mark.parametrize("preset", sorted(SYNC_PRESETS))
def test_a_preset_gives_every_key_that_is_not_given(preset: str) -> None:
    resolved = SyncSection(preset=preset, metrics="rank0").resolved()  # type: ignore[arg-type]
    assert resolved.model_dump() == {**SYNC_PRESETS[preset], "preset": preset, "metrics": "rank0"}
    assert None not in resolved.model_dump().values()
    assert resolved.resolved() == resolved


def test_mini_batches_may_be_more_than_one_ranks_samples_only_for_a_global_count() -> None:
    values = {"task": "cartpole-balance", "algorithm": {"num_mini_batches": 25}}
    with pytest.raises(ValidationError, match="fewer than"):
        RunConfig.model_validate(values | {"env": {"num_envs": 1}})
    RunConfig.model_validate(values | {"env": {"num_envs": 1, "num_envs_scope": "global"}})


@pytest.mark.parametrize("algorithm", [{}, {"name": "distillation", "teacher": "runs/t"}], ids=["ppo", "distillation"])
def test_gpu_and_cpu_workers_exclude_each_other(algorithm: dict) -> None:
    values = {"task": "x", "algorithm": algorithm}
    with pytest.raises(ValidationError, match=r"excludes launch\.gpus_per_node"):
        RunConfig.model_validate(values | {"launch": {"gpus_per_node": 1, "cpu_workers_per_node": 1}})


def test_a_collective_is_given_up_only_after_the_watchdog_has_spoken() -> None:
    launch = {"process_group_timeout_s": 600.0}
    with pytest.raises(ValidationError, match=r"600 would end a hang without stacks, before run\.hang_timeout_s=1800"):
        RunConfig.model_validate({"task": "t", "launch": launch})
    for hang_timeout_s in (300.0, None):
        RunConfig.model_validate({"task": "t", "launch": launch, "run": {"hang_timeout_s": hang_timeout_s}})


@pytest.mark.parametrize("key", [{"keep_every": 100}, {"keep_best": "Train/mean_reward"}])
def test_keeping_more_than_the_newest_needs_to_say_how_many_those_are(key: dict) -> None:
    with pytest.raises(ValidationError, match=r"unless run\.keep_last is given"):
        RunConfig.model_validate({"task": "t", "run": key})
    assert RunConfig.model_validate({"task": "t", "run": {"keep_last": 3, **key}}).run.keep_last == 3
