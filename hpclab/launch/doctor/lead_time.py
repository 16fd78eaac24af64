"""Whether a run has time to save, once it is told that it must end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpclab.launch.doctor.finding import Finding, ok, warning
from hpclab.launch.doctor.slurm_words import number
from hpclab.metrics.jsonl import read_curve
from hpclab.metrics.record import COLLECTION_TIME, LEARNING_TIME

_MARGIN_S = 10.0
"""From the notice to the ranks, and from the last rank's end to Slurm."""
_LONGEST_S = 3600.0
_MAX_RUNS = 20


@dataclass(frozen=True, slots=True)
class SaveTime:
    """What stopping has cost in a run."""

    run: str
    save_s: float
    iteration_s: float

    @property
    def needed_s(self) -> float:
        """The iteration under way, the checkpoint, and a margin."""
        return self.iteration_s + self.save_s + _MARGIN_S


def measured(runs: Path) -> SaveTime | None:
    """Return the last checkpoint's time in the run below `runs` that saved last; None when none has saved."""
    manifests = sorted(runs.glob("*/checkpoints/iter-*/manifest.json"), key=lambda path: path.stat().st_mtime)
    for manifest in reversed(manifests[-_MAX_RUNS:]):
        match = re.fullmatch(r"iter-(\d+)", manifest.parent.name)
        run = manifest.parents[2]
        before = [one for one in read_curve(run / "metrics" / "metrics.jsonl") if match and _is(one, int(match[1]) - 1)]
        if not before:
            continue
        # The iteration's line is written when it ends, the manifest when all of the checkpoint is on disk.
        save_s = manifest.stat().st_mtime - float(before[-1]["time"])
        seconds = (before[-1].get(COLLECTION_TIME) or 0.0) + (before[-1].get(LEARNING_TIME) or 0.0)
        if 0.0 <= save_s < _LONGEST_S:
            return SaveTime(run.name, save_s, seconds)
    return None


def _is(line: Mapping[str, object], iteration: int) -> bool:
    return line["iteration"] == iteration and isinstance(line.get("time"), int | float)


def check_lead_time(
    lead_s: int, partition: Mapping[str, str], config: Mapping[str, str], runs: Path
) -> Iterator[Finding]:
    """Compare the notices that a job gets with what saving has taken.

    Args:
        lead_s: the job's notice before its walltime ends [s].
        partition: what Slurm says of the job's partition; empty when unknown.
        config: what Slurm says of the cluster.
        runs: folder with earlier runs.
    """
    time = measured(runs)
    if time is None:
        yield ok("lead time", f"{lead_s} s before the walltime's end; no checkpoint in {runs} tells how long one takes")
        return
    cost = f"{time.run} needed {time.iteration_s:.1f} s an iteration and {time.save_s:.1f} s to save"
    if lead_s < time.needed_s:
        wanted = 10 * int(2 * time.needed_s / 10 + 1)
        yield warning("lead time", f"{lead_s} s, but {cost}", f"set slurm.signal_lead_s={wanted}")
    else:
        yield ok("lead time", f"{lead_s} s before the walltime's end; {cost}")
    mode = partition.get("PreemptMode", "OFF")
    if "OFF" in mode or config.get("PreemptType", "preempt/none") == "preempt/none":
        return
    grace = number(partition.get("GraceTime", "0")) or 0
    if grace < time.needed_s:
        # Slurm kills at the end of the grace time: what was not saved by then is done again.
        text = f"{grace} s of grace when preempted, but {cost}"
        yield warning(
            "grace time", text, "lower run.save_interval: a preemption costs what was done since the last save"
        )
    else:
        yield ok("grace time", f"{grace} s when preempted")
