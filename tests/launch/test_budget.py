"""When a run comes back by itself, as a table."""

from __future__ import annotations

import pytest

from hpclab.config.schema import RequeueSection
from hpclab.launch.budget import judge
from hpclab.launch.jobs import Attempt, Cause

DEFAULT = RequeueSection()


def history(*ends: tuple[Cause, int | None]) -> list[Attempt]:
    """Attempts by cause and the last iteration each finished."""
    return [
        Attempt(number, "slurm", ("n1",), 1, start=0.0, cause=cause, last_iteration=last)
        for number, (cause, last) in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("ends", "budgets", "goes_on", "cause"),
    [
        ([("preempted", 3)], DEFAULT, True, "preempted"),
        ([("preempted", k) for k in range(100)], DEFAULT, True, "preempted"),
        ([("timeout", k) for k in range(100)], DEFAULT, True, "timeout"),
        ([("crashed", 3)], DEFAULT, True, "crashed"),
        ([("crashed", 3), ("crashed", 9)], DEFAULT, False, "crashed"),
        ([("crashed", 3)], RequeueSection(crashed=0), False, "crashed"),
        ([("crashed", k) for k in range(9)], RequeueSection(crashed="unlimited"), True, "crashed"),
        # Other causes in between change nothing, and no success resets a count.
        ([("crashed", 3), ("preempted", 9), ("timeout", 20), ("crashed", 30)], DEFAULT, False, "crashed"),
        ([("crashed", 3), ("preempted", 9)], DEFAULT, True, "preempted"),
        ([("node_failure", k) for k in range(5)], DEFAULT, True, "node_failure"),
        ([("node_failure", k) for k in range(6)], DEFAULT, False, "node_failure"),
        ([("preempted", 3)], RequeueSection(preempted=0), False, "preempted"),
        # Attempts that finish no new iteration, whatever ends them; to repeat one is not to advance.
        ([("preempted", None)] * 2, DEFAULT, True, "preempted"),
        ([("preempted", None)] * 3, DEFAULT, False, "no_progress"),
        ([("node_failure", 7)] * 3, DEFAULT, True, "node_failure"),
        ([("node_failure", 7)] * 4, DEFAULT, False, "no_progress"),
        ([("timeout", 7), ("timeout", 6), ("preempted", None), ("node_failure", 7)], DEFAULT, False, "no_progress"),
        ([("preempted", None)] * 2 + [("preempted", 0)] + [("preempted", None)] * 2, DEFAULT, True, "preempted"),
        ([("preempted", None)], RequeueSection(no_progress=1), False, "no_progress"),
        # A user's own end is no sign of standing still.
        ([("cancelled", None)] * 5 + [("preempted", None)], DEFAULT, True, "preempted"),
        # Ends that nothing brings back.
        ([("completed", 9)], DEFAULT, False, "completed"),
        ([("cancelled", 9)], DEFAULT, False, "cancelled"),
    ],
)
def test_verdict(ends: list[tuple[Cause, int | None]], budgets: RequeueSection, goes_on: bool, cause: str) -> None:
    verdict = judge(history(*ends), budgets)
    assert (verdict.goes_on, verdict.cause) == (goes_on, cause)


def test_the_reason_names_the_setting() -> None:
    assert judge(history(("crashed", 1)), DEFAULT).reason == "crashed, requeue 1 of 1"
    over = judge(history(("crashed", 1), ("crashed", 2)), DEFAULT)
    assert over.reason == "crashed 2 times (slurm.requeue.crashed=1 requeues are used up)"
    still = judge(history(*[("preempted", None)] * 3), DEFAULT)
    assert "3 attempts in a row finished no new iteration" in still.reason
    assert "slurm.requeue.no_progress=3" in still.reason
