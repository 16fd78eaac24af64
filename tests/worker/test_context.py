"""A rank's place, its share of environments, its share of cores."""

import os

import pytest

from hpclab.config.schema import EnvSection
from hpclab.errors import ConfigError, LaunchError
from hpclab.worker.context import WorkerContext

ENVIRONMENT = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node3",
    "MASTER_PORT": "29500",
}


def context(rank: int, world_size: int, local_world_size: int = 1) -> WorkerContext:
    return WorkerContext(rank, 0, world_size, local_world_size, "127.0.0.1", 1)


def test_the_environment_says_which_rank_this_is() -> None:
    assert WorkerContext.from_environment(ENVIRONMENT) == WorkerContext(5, 1, 8, 4, "node3", 29500)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT"])
@pytest.mark.parametrize("value", [None, "", "x"])
def test_a_missing_or_wrong_variable_is_named(name: str, value: str | None) -> None:
    environment = {key: text for key, text in ENVIRONMENT.items() if key != name}
    if value is not None:
        environment[name] = value
    with pytest.raises(LaunchError, match=f"^{name}="):
        WorkerContext.from_environment(environment)


def test_environments_per_rank_or_of_the_whole_run() -> None:
    each = EnvSection(num_envs=10)
    whole = EnvSection(num_envs=10, num_envs_scope="global")
    assert [context(rank, 3).num_envs(each) for rank in range(3)] == [10, 10, 10]
    assert [context(rank, 3).num_envs(whole) for rank in range(3)] == [4, 3, 3]
    with pytest.raises(ConfigError, match=r"env\.num_envs=10 .* 11 ranks"):
        context(0, 11).num_envs(whole)


def test_the_cores_are_shared_by_the_ranks_of_a_node(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(7)))
    assert [context(0, 8, local).cpu_threads() for local in (1, 2, 3, 8)] == [7, 3, 2, 1]
