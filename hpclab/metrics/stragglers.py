"""Which ranks the others wait for: each rank's wait at the first collective of an iteration."""

from __future__ import annotations

import logging
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from hpclab.metrics import record as tags

_LOGGER = logging.getLogger(__name__)
_WINDOW = 50
"""Iterations between two judgements."""
_MOSTLY = 0.8
"""Share of a window's iterations in which a rank must be the slowest to be named."""
_WORTH_NAMING = 0.05
"""Share of a window's time that the others must have waited for it."""


class Stragglers:
    """Compares when ranks are done collecting.

    All ranks leave the packed sum at the end of an iteration together, and meet again at the first collective after the
    next rollout. Each measures the time between, and the next packed sum carries it to all: one number a rank, no
    collective of its own. A rank's wait is how much earlier it arrives than the last one.
    """

    def __init__(self, rank: int, hosts: Sequence[str]) -> None:
        """Take this rank and the host name of every rank."""
        self._rank = rank
        self._hosts = hosts
        self._iterations = 0
        self._slowest: Counter[int] = Counter()
        self._waited_s: defaultdict[int, float] = defaultdict(float)
        self._time_s = 0.0

    def share(self, arrival_s: float) -> dict[str, float]:
        """Return numbers whose sums over the ranks are every rank's time to the first collective [s]."""
        if len(self._hosts) == 1:
            return {}
        return {_key(rank): arrival_s if rank == self._rank else 0.0 for rank in range(len(self._hosts))}

    def values(self, sums: Mapping[str, float], iteration_s: float) -> dict[str, float]:
        """Return the waits by log tag [s] and the slowest rank, none with one rank; rank 0 names who stays behind.

        Args:
            sums: what `share` returned, summed over the ranks.
            iteration_s: length of this iteration [s].
        """
        if len(self._hosts) == 1:
            return {}
        arrivals = [sums[_key(rank)] for rank in range(len(self._hosts))]
        last = max(arrivals)
        waits = [last - arrival for arrival in arrivals]
        slowest = arrivals.index(last)
        median = statistics.median(waits)
        self._judge(slowest, median, iteration_s)
        return {
            tags.WAIT_MIN: min(waits),
            tags.WAIT_MEDIAN: median,
            tags.WAIT_MAX: max(waits),
            tags.SLOWEST_RANK: float(slowest),
        }

    def _judge(self, slowest: int, median_s: float, iteration_s: float) -> None:
        self._slowest[slowest] += 1
        self._waited_s[slowest] += median_s
        self._time_s += iteration_s
        self._iterations += 1
        if self._iterations < _WINDOW:
            return
        rank, times = self._slowest.most_common(1)[0]
        waited_s = self._waited_s[rank]
        if self._rank == 0 and times >= _MOSTLY * _WINDOW and waited_s > _WORTH_NAMING * self._time_s:
            _LOGGER.warning(
                "rank %d on %s is the slowest in %d of the last %d iterations: the other ranks waited %.3f s of %.3f s "
                "an iteration for it",
                *(rank, self._hosts[rank], times, _WINDOW, waited_s / _WINDOW, self._time_s / _WINDOW),
            )
        self._iterations, self._time_s = 0, 0.0
        self._slowest.clear()
        self._waited_s.clear()


def _key(rank: int) -> str:
    return f"arrival/{rank:04d}"
