"""How environments are divided over ranks, and what the table at the start of a run says."""

from __future__ import annotations

import pytest

from hpclab.config.schema import SYNC_PRESETS, EnvSection, PPOSection, RunConfig, SyncSection
from hpclab.distributed.sync import describe_sync, mini_batch_sizes, sample_weights, split_envs
from hpclab.errors import ConfigError


def run(num_envs: int, scope: str = "per_rank", preset: str = "mjlab", **algorithm: object) -> RunConfig:
    return RunConfig(
        task="any",
        env=EnvSection(num_envs=num_envs, num_envs_scope=scope),
        algorithm=PPOSection(**algorithm),
        sync=SyncSection(preset=preset),
    )


@pytest.mark.parametrize(
    ("num_envs", "scope", "world_size", "expected"),
    [(5, "per_rank", 2, [5, 5]), (5, "global", 2, [3, 2]), (10, "global", 3, [4, 3, 3]), (6, "global", 3, [2, 2, 2])],
)
def test_split_envs(num_envs, scope, world_size, expected):
    assert split_envs(EnvSection(num_envs=num_envs, num_envs_scope=scope), world_size) == expected


def test_weights_are_shares_of_a_mini_batch_and_none_when_equal():
    assert sample_weights(run(5, "global", num_steps_per_env=8), 2) == [0.6, 0.4]
    assert sample_weights(run(10, "global", num_steps_per_env=4), 3) == [0.4, 0.3, 0.3]
    # 10, 7 and 7 of 24: what a rank cannot divide into mini-batches counts for nothing
    assert sample_weights(run(10, "global", num_steps_per_env=10, num_mini_batches=4), 3) == [10 / 24, 7 / 24, 7 / 24]
    assert sample_weights(run(6, "global"), 3) is None
    assert sample_weights(run(5), 2) is None


def test_too_few_environments_for_the_ranks_is_a_configuration_error():
    with pytest.raises(ConfigError, match=r"env\.num_envs=2 for the whole run leaves 0 to a rank of 3"):
        mini_batch_sizes(run(2, "global"), 3)


@pytest.mark.parametrize(
    ("num_envs", "advantage", "world_size", "num_mini_batches"),
    [(4, "mini_batch", 2, 4), (1, "local", 2, 1), (1, "global", 1, 1)],
)
def test_a_single_sample_cannot_be_normalised(num_envs, advantage, world_size, num_mini_batches):
    config = run(num_envs, num_steps_per_env=1, num_mini_batches=num_mini_batches)
    with pytest.raises(ConfigError, match=f"sync.advantage={advantage} would normalise over a single sample"):
        mini_batch_sizes(config.model_copy(update={"sync": SyncSection(advantage=advantage)}), world_size)
    assert mini_batch_sizes(config.model_copy(update={"sync": SyncSection(advantage="global")}), 2)


def test_the_table_states_batch_sizes_and_what_each_key_means():
    rows = {row.what: row for row in describe_sync(run(5, "global", "global", num_steps_per_env=7), 2, 3)}
    assert rows["ranks"].meaning == "3 environments on this rank, 5 in all"
    assert rows["samples per iteration"].value == "35"
    assert rows["samples per iteration"].meaning.endswith("3 unused")  # 21 = 4 * 5 + 1 and 14 = 4 * 3 + 2
    assert rows["mini-batch"] == ("mini-batch", "8", "3 to 5 of each rank")
    assert rows["updates per iteration"].value == "20"
    assert "by its samples" in rows["gradients"].meaning
    values = {key: rows[f"sync.{key}"].value for key in SyncSection.model_fields if f"sync.{key}" in rows}
    assert values == {key: value for key, value in SYNC_PRESETS["global"].items() if key in values}
    assert {"curriculum": "global", "checkpoint": "sharded", "learning_rate": "replicated"}.items() <= values.items()


def test_the_table_of_the_mjlab_preset():
    rows = {row.what: row for row in describe_sync(run(4096), 8, 4096)}
    assert rows["samples per iteration"].value == str(8 * 4096 * 24)
    assert rows["mini-batch"].value == str(8 * 24576)
    assert "equally" in rows["gradients"].meaning
    keys = ("normalizer", "advantage", "learning_rate", "curriculum", "metrics", "checkpoint")
    assert [rows[f"sync.{key}"].value for key in keys] == ["local", "local", "broadcast", "local", "rank0", "rank0"]


def test_the_table_shows_a_fixed_learning_rate_as_fixed():
    rows = {row.what: row for row in describe_sync(run(64, schedule="fixed"), 1, 64)}
    assert rows["sync.learning_rate"][1:] == ("fixed", "0.001 throughout")
