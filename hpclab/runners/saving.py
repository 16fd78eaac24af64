"""When checkpoints are written: in the background while training goes on, and for good at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hpclab.checkpoint.store import CheckpointStore
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError

_LOGGER = logging.getLogger(__name__)
States = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""What ranks share (None on all but rank 0), and what this rank has of its own (None where that is not kept)."""


class Saving:
    """Hands the state of one rank to the store. All methods but `progress` and `rescue` are collective.

    A checkpoint that cannot be written while training goes on is logged; one at the end is an error.
    """

    def __init__(
        self, store: CheckpointStore, *, num_envs: int, collectives: Collectives, capture: Callable[[], States]
    ) -> None:
        self._store = store
        self._num_envs = num_envs
        self._leader = collectives.rank == 0
        self._alone = collectives.world_size == 1
        self._capture = capture
        self.progress = store.progress
        self.on_saved: Callable[[float], None] = lambda duration_s: None
        """Told of every checkpoint that is complete, and how long it took [s]."""
        self._began = 0.0
        self._iteration: int | None = None

    def begin(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Copy the state between two iterations and write it while training goes on."""
        with self._training_goes_on():
            self._log(self._store.finish())  # waits only where writing takes longer than the interval
        with self._training_goes_on():
            self._began = time.monotonic()
            shared, shard = self._capture()
            self._store.begin(iteration, shared=shared, shard=shard, num_envs=self._num_envs, metrics=metrics)

    def advance(self, sums: Mapping[str, float]) -> None:
        """Take the write in flight further, once an iteration; see `CheckpointStore.advance`."""
        with self._training_goes_on():
            self._log(self._store.advance(sums))

    def save(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Wait for the write in flight, then write the state and wait for that.

        Raises:
            CheckpointError: the state could not be written.
        """
        with self._training_goes_on():
            self._log(self._store.finish())
        self._began = time.monotonic()
        shared, shard = self._capture()
        self._store.save(iteration, shared=shared, shard=shard, num_envs=self._num_envs, metrics=metrics)
        self._report(iteration)

    def rescue(self) -> None:
        """Wait for the write in flight after a failure; with several ranks, that would take the others too."""
        if not self._alone:
            return
        try:
            self._log(self._store.finish())
        except CheckpointError as error:
            _LOGGER.error("%s", error)

    def _log(self, saved: int | None) -> None:
        if saved is not None:
            _LOGGER.info("saved after iteration %d", saved - 1)
            self._report(saved)

    def _report(self, iteration: int) -> None:
        if iteration != self._iteration:  # the store writes none twice: that takes no time
            self._iteration = iteration
            self.on_saved(time.monotonic() - self._began)

    @contextmanager
    def _training_goes_on(self) -> Iterator[None]:
        try:
            yield
        except CheckpointError as error:
            if self._leader:
                _LOGGER.error("%s; training goes on", error)
