"""Where this process stands among its ranks. The only reader of the rank variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from hpclab.config.schema import EnvSection
from hpclab.errors import ConfigError, LaunchError


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """One rank's place. Global ranks count over all nodes, local ranks over this node."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int

    @classmethod
    def single(cls) -> WorkerContext:
        """Return the context of a process that trains alone."""
        return cls(rank=0, local_rank=0, world_size=1, local_world_size=1, master_addr="127.0.0.1", master_port=0)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> WorkerContext:
        """Read what the launcher set.

        Raises:
            LaunchError: a variable is missing or not a number.
        """

        def number(name: str) -> int:
            value = environment.get(name)
            if value is None or not value.isdigit():
                raise LaunchError(
                    f"{name}={value!r} in the environment of a worker; start workers with hpclab train or submit"
                )
            return int(value)

        return cls(
            rank=number("RANK"),
            local_rank=number("LOCAL_RANK"),
            world_size=number("WORLD_SIZE"),
            local_world_size=number("LOCAL_WORLD_SIZE"),
            master_addr=environment.get("MASTER_ADDR", "127.0.0.1"),
            master_port=number("MASTER_PORT"),
        )

    def num_envs(self, env: EnvSection) -> int:
        """Return how many environments this rank runs, by `env.num_envs_scope`.

        Raises:
            ConfigError: fewer environments in the whole run than ranks.
        """
        if env.num_envs_scope == "per_rank":
            return env.num_envs
        share, rest = divmod(env.num_envs, self.world_size)
        if share == 0:
            raise ConfigError(
                f"env.num_envs={env.num_envs} for the whole run, but it has {self.world_size} ranks; raise it"
            )
        return share + (1 if self.rank < rest else 0)

    def cpu_threads(self) -> int:
        """Return this rank's share of the cores that this process may use, at least one."""
        return max(1, len(os.sched_getaffinity(0)) // self.local_world_size)
