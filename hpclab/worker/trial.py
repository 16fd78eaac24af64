"""One rank put together for a measurement: it trains as any run does, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import torch

from hpclab.algorithms.make import algorithm_for
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.distributed.seeds import start_streams
from hpclab.envs.make import make_env
from hpclab.models.precision import set_float32_products
from hpclab.runners.on_policy import OnPolicyRunner


@contextmanager
def trial(config: RunConfig, *, device: torch.device, threads: int) -> Iterator[OnPolicyRunner]:
    """Put one rank of a run together, ready for its first iteration; free its device memory at the end.

    Args:
        config: the run; its `env.num_envs` environments are simulated, whatever their scope.
        device: where it trains.
        threads: CPU threads for physics.

    Raises:
        ConfigError: there is no such task, or the rank has too few environments for its mini-batches.
    """
    set_float32_products(config.algorithm.precision, device)
    start_streams(config, 0)
    alone = Collectives()
    num_envs = config.env.num_envs
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(make_env(config, num_envs=num_envs, device=device, threads=threads)) as env,
    ):
        algorithm = algorithm_for(env, config, alone)
        store = CheckpointStore(Path(folder), alone, config_sha256="")
        runner = OnPolicyRunner(config, env, algorithm, alone, store, lambda: False)
        runner.resume()
        try:
            yield runner
        finally:
            runner.close()
