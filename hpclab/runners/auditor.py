"""The live audit: now and then ranks compare the training state that should be equal on all of them."""

from __future__ import annotations

import logging
from typing import Any

from hpclab.algorithms.algorithm import Algorithm
from hpclab.config.schema import RunConfig
from hpclab.distributed.audit import compare
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import VecEnv
from hpclab.errors import WorkerError

_LOGGER = logging.getLogger(__name__)


class Auditor:
    """Compares fingerprints of the shared state every `run.audit_interval` iterations: one small all_gather."""

    def __init__(self, config: RunConfig, env: VecEnv, algorithm: Algorithm, collectives: Collectives) -> None:
        self._interval = config.run.audit_interval
        self._ends_run = config.run.audit == "error"
        self._one_curriculum = config.sync.resolved().curriculum != "local"
        self._env = env
        self._algorithm = algorithm
        self._collectives = collectives

    def check(self, iteration: int) -> None:
        """Compare the state after `iteration` iterations, if it is time to. Collective.

        Raises:
            WorkerError: the state differs and `run.audit` is "error"; on every rank.
        """
        if self._interval is None or iteration % self._interval != 0 or self._collectives.world_size == 1:
            return
        found = compare(self._shared_state(), self._collectives, self._env.device)
        if found is None:
            return
        if self._ends_run:
            raise WorkerError(
                f"audit after iteration {iteration - 1}: {found}. Checkpoints from before it are whole; "
                "if hardware is to blame, exclude the host of that rank (the log of each rank names its host)"
            )
        if self._collectives.rank == 0 or self._collectives.rank in found.ranks:
            _LOGGER.warning("audit after iteration %d: %s", iteration - 1, found)

    def _shared_state(self) -> dict[str, Any]:
        state = self._algorithm.shared_state_dict()
        return state | {"curriculum": self._env.curriculum_state_dict()} if self._one_curriculum else state
