"""How a run is divided over its ranks, and what they share: the effective semantics, in words."""

from __future__ import annotations

from typing import NamedTuple

from hpclab.config.schema import EnvSection, RunConfig


def split_envs(env: EnvSection, world_size: int) -> list[int]:
    """Return the number of environments of each rank.

    Under `num_envs_scope: global` rank r of W runs num_envs // W, plus one if r < num_envs % W.
    """
    if env.num_envs_scope == "per_rank":
        return [env.num_envs] * world_size
    base, rest = divmod(env.num_envs, world_size)
    return [base + (rank < rest) for rank in range(world_size)]


def sample_weights(config: RunConfig, world_size: int) -> list[float] | None:
    """Return each rank's share of a mini-batch over all ranks, or None when all shares are equal."""
    algorithm = config.algorithm
    envs = split_envs(config.env, world_size)
    sizes = [count * algorithm.num_steps_per_env // algorithm.num_mini_batches for count in envs]
    if len(set(sizes)) == 1 and len(set(envs)) == 1:
        return None
    return [size / sum(sizes) for size in sizes]


class SyncRow(NamedTuple):
    """One line of the table that a run prints at its start."""

    what: str
    value: str
    meaning: str


_MEANINGS = {
    "normalizer": {
        "local": "each rank's own moments, updated every step; a checkpoint holds rank 0's",
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
    "metrics": {"rank0": "rank 0's own", "global": "reduced over all ranks"},
}


def describe_sync(config: RunConfig, world_size: int, num_envs: int) -> list[SyncRow]:
    """Return the effective semantics and batch sizes of a run.

    Args:
        config: the run.
        world_size: number of ranks.
        num_envs: environments of this rank.
    """
    algorithm, sync = config.algorithm, config.sync.resolved()
    steps, batches = algorithm.num_steps_per_env, algorithm.num_mini_batches
    envs = split_envs(config.env, world_size)
    mini_batches = [count * steps // batches for count in envs]
    updates = algorithm.num_learning_epochs * batches
    dropped = sum(count * steps - size * batches for count, size in zip(envs, mini_batches, strict=True))
    weights = "equal" if sample_weights(config, world_size) is None else "by sample count"
    rows = [
        SyncRow("ranks", str(world_size), f"{num_envs} environments on this rank, {sum(envs)} in all"),
        SyncRow("samples per iteration", str(sum(envs) * steps), f"{steps} steps of every environment"),
        SyncRow("mini-batch", str(sum(mini_batches)), f"{_span(mini_batches)} per rank, {dropped} samples dropped"),
        SyncRow("updates per iteration", str(updates), f"{algorithm.num_learning_epochs} epochs x {batches}"),
        SyncRow(
            "gradients",
            "mean",
            f"one all_reduce per update, ranks weighted {'equally' if weights == 'equal' else weights}",
        ),
    ]
    for key, meanings in _MEANINGS.items():
        value = getattr(sync, key)
        meaning = meanings[value]
        if key == "learning_rate" and algorithm.schedule == "fixed":
            value, meaning = "fixed", f"{algorithm.learning_rate:g} throughout"
        rows.append(SyncRow(f"sync.{key}", value, meaning))
    return rows


def _span(values: list[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"
