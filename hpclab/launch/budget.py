"""Whether a run comes back by itself: how often each cause may end an attempt, and whether attempts still advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpclab.config.load import load_config
from hpclab.config.schema import RequeueSection
from hpclab.launch.jobs import Attempt, Cause
from hpclab.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the budgets say after an attempt."""

    goes_on: bool
    cause: Cause
    """The attempt's own cause, or no_progress."""
    reason: str
    """For the log and for `hpclab status`."""


def judge(attempts: Sequence[Attempt], budgets: RequeueSection) -> Verdict:
    """Say whether a run comes back after the last of `attempts`, which has ended.

    Every attempt of the run counts, whichever job it belonged to: budgets are never reset.

    Args:
        attempts: all attempts, oldest first.
        budgets: how often each cause is forgiven, and how many attempts in a row may stand still.
    """
    last = attempts[-1]
    cause = last.cause
    if cause is None or cause in ("completed", "cancelled", "no_progress"):
        return Verdict(False, cause or "crashed", f"an attempt that ended as {cause} does not come back")
    still = _standing_still(attempts)
    if still >= budgets.no_progress:
        return Verdict(
            False,
            "no_progress",
            f"{_times(still, 'attempt')} in a row finished no new iteration, the last one {cause} "
            f"(slurm.requeue.no_progress={budgets.no_progress})",
        )
    budget: int | str = getattr(budgets, cause)
    count = sum(attempt.cause == cause for attempt in attempts)
    if isinstance(budget, int) and count > budget:
        return Verdict(
            False, cause, f"{cause} {_times(count, 'time')} (slurm.requeue.{cause}={budget} requeues are used up)"
        )
    limit = f" of {budget}" if isinstance(budget, int) else ""
    return Verdict(True, cause, f"{cause}, requeue {count}{limit}")


def budgets_of(run: RunFolder) -> RequeueSection:
    """Return a run's budgets as its config.yaml has them now; the defaults where there is none."""
    return load_config(run.config).slurm.requeue if run.config.exists() else RequeueSection()


def _standing_still(attempts: Sequence[Attempt]) -> int:
    """Return how many of the last attempts in a row got no further than those before them."""
    furthest, count = -1, 0
    for attempt in attempts:
        reached = -1 if attempt.last_iteration is None else attempt.last_iteration
        if reached > furthest:
            furthest, count = reached, 0
        elif attempt.cause not in ("completed", "cancelled"):  # a user may end an attempt at any moment
            count += 1
    return count


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
