"""Stop in time before the walltime's end, also where Slurm sends no notice: how long a stop takes is measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from hpclab.launch.watching import watching
from hpclab.metrics.jsonl import read_last
from hpclab.metrics.record import COLLECTION_TIME, LEARNING_TIME
from hpclab.run_folder import RunFolder

_LEAVE_S = 30.0
"""For the ranks and agents to end, and for Slurm to take the requeue."""
_SAVE_SPREAD = 2.0
"""A shared file system takes now and then twice as long as the last time."""
_MAX_SHARE = 3
"""A short walltime keeps two thirds for training."""
_MAX_POLL_S = 5.0
STOP_REASON = "the walltime's end is near"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long this run takes for what must still be done after a notice."""

    iteration_s: float
    save_s: float

    @property
    def lead_s(self) -> float:
        """How long before its end a job must be told to stop [s]."""
        return _LEAVE_S + self.iteration_s + _SAVE_SPREAD * self.save_s


def read_pace(run: RunFolder) -> Pace | None:
    """Return a run's pace; None before its first checkpoint."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        save_s = float(json.loads(run.save_time.read_text())["save_s"])
        last = read_last(run.metrics / "metrics.jsonl") or {}
        return Pace(float(last.get(COLLECTION_TIME, 0.0)) + float(last.get(LEARNING_TIME, 0.0)), save_s)
    return None


def lead_s(pace: Pace | None, *, walltime_s: float, signal_lead_s: float) -> float:
    """Return how long before the walltime's end a job stops by itself [s].

    Args:
        pace: what was measured; None before the first checkpoint, where the configured lead is all that is known.
        walltime_s: of the whole job.
        signal_lead_s: when Slurm sends its notice, which mostly comes first.
    """
    return min(pace.lead_s if pace is not None else signal_lead_s, walltime_s / _MAX_SHARE)


def shortage(pace: Pace | None, *, signal_lead_s: float) -> str | None:
    """Return a warning when Slurm's notice would come too late to save; None when all is well."""
    if pace is None or pace.lead_s <= signal_lead_s:
        return None
    return (
        f"warning: the notice comes {signal_lead_s:.0f} s before the end, but an iteration ({pace.iteration_s:.1f} s), "
        f"a checkpoint ({pace.save_s:.1f} s, twice that to be safe) and leaving take up to {pace.lead_s:.0f} s; "
        f"set slurm.signal_lead_s={-(-pace.lead_s // 10) * 10:.0f}"
    )


class WalltimeWatch:
    """Calls `stop` once when the end of the walltime is near."""

    def __init__(
        self,
        run: RunFolder,
        *,
        end: float,
        walltime_s: float,
        signal_lead_s: float,
        stop: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            run: whose pace counts.
            end: of the walltime [s since the epoch].
            walltime_s: of the whole job.
            signal_lead_s: when Slurm sends its own notice.
            stop: asked to stop the ranks, with the reason.
            say: told once when the notice would come too late.
        """
        self.stopped = False
        self._run = run
        self._end = end
        self._walltime_s = walltime_s
        self._signal_lead_s = signal_lead_s
        self._stop = stop
        self._say = say
        self._warned = False

    def left_s(self) -> float:
        """Return how long the job may still run [s]."""
        return self._end - time.time()

    def running(self) -> AbstractContextManager[None]:
        """Look while a block runs."""

        def look() -> bool:
            self.look(time.time())
            return self.stopped

        return watching(look, every_s=min(_MAX_POLL_S, self._walltime_s / 60), name="walltime")

    def look(self, now: float) -> None:
        """Warn, or stop, where it is time to; `now` in s since the epoch."""
        pace = read_pace(self._run)
        warning = shortage(pace, signal_lead_s=self._signal_lead_s)
        if warning is not None and not self._warned:
            self._warned = True
            self._say(warning)
        lead = lead_s(pace, walltime_s=self._walltime_s, signal_lead_s=self._signal_lead_s)
        if not self.stopped and self._end - now <= lead:
            self.stopped = True
            self._stop(STOP_REASON)
