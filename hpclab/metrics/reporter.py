"""Hands each iteration's record to every sink. A sink that cannot write does not end the training."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hpclab.metrics.record import Record, Sink

_LOGGER = logging.getLogger(__name__)


class Reporter:
    """The sinks of rank 0; other ranks have none."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self._failing: set[int] = set()

    def write(self, record: Record) -> None:
        """Hand `record` to every sink. An error of storage is logged when it begins and when it ends."""
        for index, sink in enumerate(self._sinks):
            name = type(sink).__name__
            try:
                sink.write(record)
            except OSError as error:
                if index not in self._failing:
                    _LOGGER.error("%s cannot write iteration %d: %s; training goes on", name, record.iteration, error)
                self._failing.add(index)
            else:
                if index in self._failing:
                    _LOGGER.warning("%s writes again, from iteration %d", name, record.iteration)
                self._failing.discard(index)

    def close(self) -> None:
        """Close every sink, also after one failed to."""
        for sink in self._sinks:
            try:
                sink.close()
            except OSError as error:
                _LOGGER.error("%s cannot close: %s", type(sink).__name__, error)
        self._sinks = []
