"""How a run is divided over its ranks, and what they share: the effective semantics, in words."""

from __future__ import annotations

from typing import NamedTuple

from hpclab.config.algorithms import DistillationSection, PPOSection
from hpclab.config.schema import EnvSection, RunConfig
from hpclab.errors import ConfigError


def split_envs(env: EnvSection, world_size: int) -> list[int]:
    """Return the number of environments of each rank.

    Under `num_envs_scope: global` rank r of W runs num_envs // W, plus one if r < num_envs % W.
    """
    if env.num_envs_scope == "per_rank":
        return [env.num_envs] * world_size
    base, rest = divmod(env.num_envs, world_size)
    return [base + (rank < rest) for rank in range(world_size)]


def mini_batch_sizes(config: RunConfig, world_size: int) -> list[int]:
    """Return the samples that each rank puts into a mini-batch: floor(N * T / M), or floor(N / M) * T where recurrent.

    For a distillation, N: the samples of one step.

    Raises:
        ConfigError: a rank has too few environments to put a sample into every mini-batch, or advantages would be
            normalised over a single sample.
    """
    envs = split_envs(config.env, world_size)
    if min(envs) == 0:
        raise ConfigError(
            f"env.num_envs={config.env.num_envs} for the whole run leaves 0 to a rank of {world_size}; raise it or use "
            "fewer workers"
        )
    if not isinstance(config.algorithm, PPOSection):
        return envs
    steps, batches = config.algorithm.num_steps_per_env, config.algorithm.num_mini_batches
    sizes = [count // batches * steps if config.recurrent else count * steps // batches for count in envs]
    if min(sizes) == 0:
        what = "environments to recurrent networks" if config.recurrent else "samples an iteration"
        samples = min(envs) * (1 if config.recurrent else steps)
        raise ConfigError(
            f"env.num_envs={config.env.num_envs} for the whole run leaves {min(envs)} to a rank of {world_size}, so "
            f"{samples} {what} for algorithm.num_mini_batches={batches}; raise env.num_envs or use fewer workers"
        )
    rollouts = [count * steps for count in envs]
    normalized = {"mini_batch": min(sizes), "local": min(rollouts), "global": sum(rollouts)}
    advantage = config.sync.resolved().advantage
    if advantage is not None and normalized[advantage] == 1:
        raise ConfigError(
            f"sync.advantage={advantage} would normalise over a single sample, which leaves nothing to learn from; "
            "raise env.num_envs or algorithm.num_steps_per_env, or lower algorithm.num_mini_batches"
        )
    return sizes


def sample_weights(config: RunConfig, world_size: int) -> list[float] | None:
    """Return each rank's share of a mini-batch over all ranks, or None when all shares are equal.

    Raises:
        ConfigError: see `mini_batch_sizes`.
    """
    sizes = mini_batch_sizes(config, world_size)
    return None if len(set(sizes)) == 1 else [size / sum(sizes) for size in sizes]


class SyncRow(NamedTuple):
    """One line of the table that a run prints at its start."""

    what: str
    value: str
    meaning: str


_MEANINGS = {
    "normalizer": {
        "local": "each rank's own moments, updated every step",
        "global": "moments of all ranks' samples, merged exactly after each update",
    },
    "advantage": {
        "local": "normalised over each rank's rollout",
        "global": "normalised over all ranks' rollouts",
        "mini_batch": "normalised over each rank's mini-batch",
    },
    "learning_rate": {
        "broadcast": "rank 0 decides from the mean KL of all ranks and broadcasts, each mini-batch",
        "replicated": "every rank decides from the mean KL of all ranks, which travels with the gradients",
    },
    "curriculum": {
        "local": "each rank decides from its own statistics",
        "rank0": "every rank decides the same from rank 0's statistics, once per iteration",
        "global": "every rank decides the same from all ranks' statistics, once per iteration",
    },
    "rnd_target": {"local": "each rank's own random network", "broadcast": "rank 0's random network on every rank"},
    "metrics": {"rank0": "rank 0's own", "global": "reduced over all ranks"},
    "checkpoint": {
        "rank0": "rank 0's state; at a resume other ranks take its normalisers and start environments anew",
        "sharded": "every rank's state, so that a run continues exactly",
    },
}


def describe_sync(config: RunConfig, world_size: int, num_envs: int) -> list[SyncRow]:
    """Return the effective semantics and batch sizes of a run.

    Args:
        config: the run.
        world_size: number of ranks.
        num_envs: environments of this rank.
    """
    algorithm, sync = config.algorithm, config.sync.resolved()
    envs, sizes = split_envs(config.env, world_size), mini_batch_sizes(config, world_size)
    samples = sum(envs) * algorithm.num_steps_per_env
    weighted = "by its samples" if len(set(sizes)) > 1 else "equally"
    rows = [SyncRow("ranks", f"{world_size}", f"{num_envs} environments on this rank, {sum(envs)} in all")]
    if isinstance(algorithm, PPOSection):
        rows += _ppo_rows(algorithm, samples, sizes)
        unused = set() if algorithm.rnd is not None else {"rnd_target"}
    else:
        rows += _distillation_rows(algorithm, samples)
        unused = {"advantage", "learning_rate", "rnd_target"}
    rows.append(
        SyncRow("gradients", "mean", f"over all ranks, each counting {weighted}: one all_reduce per update"),
    )
    for key, meanings in _MEANINGS.items():
        if key in unused:
            continue
        value = getattr(sync, key)
        meaning = meanings[value]
        if key == "learning_rate" and isinstance(algorithm, PPOSection) and algorithm.schedule == "fixed":
            value, meaning = "fixed", f"{algorithm.learning_rate:g} throughout"
        rows.append(SyncRow(f"sync.{key}", value, meaning))
    return rows


def _ppo_rows(algorithm: PPOSection, samples: int, sizes: list[int]) -> list[SyncRow]:
    epochs, batches, steps = algorithm.num_learning_epochs, algorithm.num_mini_batches, algorithm.num_steps_per_env
    unused = samples - sum(sizes) * batches
    return [
        SyncRow("samples per iteration", f"{samples}", f"{steps} steps of every environment, {unused} unused"),
        SyncRow("mini-batch", f"{sum(sizes)}", f"{_span(sizes)} of each rank"),
        SyncRow("updates per iteration", f"{epochs * batches}", f"{epochs} epochs of {batches} mini-batches"),
    ]


def _distillation_rows(algorithm: DistillationSection, samples: int) -> list[SyncRow]:
    epochs, steps, length = algorithm.num_learning_epochs, algorithm.num_steps_per_env, algorithm.gradient_length
    updates, unused = divmod(epochs * steps, length)
    passes = f"{epochs} passes through {steps} steps, one update every {length}, {unused} steps unused"
    return [
        SyncRow("samples per iteration", f"{samples}", f"{steps} steps of every environment"),
        SyncRow("updates per iteration", f"{updates}", passes),
    ]


def _span(values: list[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"
