"""When a job stops by itself before its walltime ends, and when it warns that a notice would come too late."""

from __future__ import annotations

import json
import threading
import time

import pytest

from hpclab.launch.walltime import Pace, WalltimeWatch, lead_s, read_pace, shortage
from hpclab.run_folder import RunFolder

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("pace", "walltime_s", "lead"),
    [
        (None, DAY_S, 120.0),  # nothing measured yet
        (Pace(1.0, 2.0), DAY_S, 35.0),  # the end is used where a stop is quick
        (Pace(20.0, 45.0), DAY_S, 140.0),  # a 45 s checkpoint gets twice its time
        (Pace(60.0, 600.0), DAY_S, 1290.0),
        (Pace(60.0, 600.0), 600.0, 200.0),  # two thirds of a short walltime are for training
        (None, 60.0, 20.0),
    ],
)
def test_lead(pace: Pace | None, walltime_s: float, lead: float) -> None:
    assert lead_s(pace, walltime_s=walltime_s, signal_lead_s=120.0) == lead


def test_a_short_notice_is_warned_of_with_what_to_set() -> None:
    assert shortage(None, signal_lead_s=60.0) is None
    assert shortage(Pace(5.0, 10.0), signal_lead_s=60.0) is None
    warning = shortage(Pace(5.0, 45.0), signal_lead_s=60.0)
    assert warning is not None
    assert "the notice comes 60 s before the end" in warning
    assert "slurm.signal_lead_s=130" in warning


def measured(run: RunFolder, save_s: float, iteration_s: float) -> None:
    run.metrics.mkdir()
    run.save_time.write_text(json.dumps({"save_s": save_s}))
    line = {"iteration": 0, "Perf/collection_time": iteration_s, "Perf/learning_time": 0.0}
    (run.metrics / "metrics.jsonl").write_text(json.dumps(line) + "\n")


def test_the_pace_is_read_from_the_run(run: RunFolder) -> None:
    assert read_pace(run) is None
    measured(run, 12.5, 3.0)
    assert read_pace(run) == Pace(3.0, 12.5)
    run.save_time.write_text("")
    assert read_pace(run) is None


def test_the_job_is_stopped_once_when_the_time_has_come(run: RunFolder) -> None:
    stops: list[str] = []
    said: list[str] = []
    watch = WalltimeWatch(
        run, end=10_000.0, walltime_s=10_000.0, signal_lead_s=60.0, stop=stops.append, say=said.append
    )
    watch.look(9_939.0)
    assert (stops, said, watch.stopped) == ([], [], False)
    measured(run, 45.0, 5.0)  # a lead of 125 s
    watch.look(9_874.0)
    assert stops == []
    watch.look(9_875.0)
    watch.look(9_990.0)
    assert stops == ["the walltime's end is near"]
    assert watch.stopped
    assert len(said) == 1, "one warning an attempt"


def test_it_looks_by_itself(run: RunFolder) -> None:
    stopped = threading.Event()
    watch = WalltimeWatch(
        run, end=time.time(), walltime_s=6.0, signal_lead_s=60.0, stop=lambda why: stopped.set(), say=print
    )
    with watch.running():
        assert stopped.wait(5)
