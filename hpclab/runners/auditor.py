"""The live audit: now and then ranks compare the training state that should be equal on all of them."""

from __future__ import annotations

import logging

import torch

from hpclab.algorithms.algorithm import Algorithm
from hpclab.config.schema import RunSection
from hpclab.distributed.audit import compare
from hpclab.distributed.collectives import Collectives
from hpclab.errors import WorkerError

_LOGGER = logging.getLogger(__name__)


class Auditor:
    """Compares fingerprints of the shared state every `run.audit_interval` iterations: one small all_gather."""

    def __init__(self, run: RunSection, algorithm: Algorithm, collectives: Collectives, device: torch.device) -> None:
        self._interval = run.audit_interval
        self._ends_run = run.audit == "error"
        self._algorithm = algorithm
        self._collectives = collectives
        self._device = device

    def check(self, iteration: int) -> None:
        """Compare the state after `iteration` iterations, if it is time to. Collective.

        Raises:
            WorkerError: the state differs and `run.audit` is "error"; on every rank.
        """
        if self._interval is None or iteration % self._interval != 0 or self._collectives.world_size == 1:
            return
        found = compare(self._algorithm.shared_state_dict(), self._collectives, self._device)
        if found is None:
            return
        if self._ends_run:
            raise WorkerError(
                f"audit after iteration {iteration - 1}: {found}. Checkpoints from before it are whole; "
                "if hardware is to blame, exclude the host of that rank (the log of each rank names its host)"
            )
        if self._collectives.rank == 0 or self._collectives.rank in found.ranks:
            _LOGGER.warning("audit after iteration %d: %s", iteration - 1, found)
