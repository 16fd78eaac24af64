"""The soak's checks see what they are there to see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_lab.settings import Layout
from slurm_lab.soak_checks import Happened, examine
from slurm_lab.soaked_run import SoakedRun

from hpclab.launch import jobs
from hpclab.run_folder import RunFolder

EVENTS = [Happened(40.0, "USR2", "USR2 to all tasks", 0, 1)]


class QuietRun(SoakedRun):
    """A run whose job has completed on a cluster that has nothing left to do."""

    left: tuple[str, ...] = ()

    def state(self) -> str:
        return "COMPLETED"

    def processes(self) -> list[str]:
        return list(self.left)


@pytest.fixture
def run(tmp_path: Path) -> QuietRun:
    """Two attempts of two ranks: 0 and 1 before a notice, 2 and 3 after it."""
    folder = RunFolder(tmp_path / "soak")
    folder.metrics.mkdir(parents=True)
    lines = [json.dumps({"iteration": number, "attempt": number // 2}) + "\n" for number in range(4)]
    for attempt, cause in enumerate(("preempted", "completed")):
        jobs.begin(folder, "slurm", hosts=["n1", "n2"], num_workers=2, job_id="2")
        folder.logs(attempt).mkdir(parents=True)
        done = (2 * attempt, 2 * attempt + 1)
        with (folder.metrics / "metrics.jsonl").open("a") as metrics:
            metrics.writelines(lines[number] for number in done)
        for rank in range(2):
            log = [f"INFO rank {rank} of 2 on n{rank + 1} (pid 7)"] + [f"INFO iteration {number}/4" for number in done]
            folder.rank_log(attempt, rank).write_text("\n".join(log) + "\n")
        jobs.finish(folder, attempt, cause)
    return QuietRun(Layout(tmp_path / "cluster"), folder)


def failed(run: SoakedRun) -> list[str]:
    return [check.what for check in examine(run, EVENTS, 4, 2) if not check.passed]


def test_a_run_in_order_passes(run: QuietRun) -> None:
    assert failed(run) == []


def twice(run: QuietRun) -> None:
    with (run.run.metrics / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"iteration": 3, "attempt": 1}\n')


def other_cause(run: QuietRun) -> None:
    jobs.finish(run.run, 0, "node_failure")


def lost_line(run: QuietRun) -> None:
    log = run.run.rank_log(1, 0)
    log.write_text(log.read_text().replace("INFO iteration 3/4\n", ""))


def no_log(run: QuietRun) -> None:
    run.run.rank_log(0, 1).unlink()


def orphan(run: QuietRun) -> None:
    run.left = ("n1: 41 python",)


def locked(run: QuietRun) -> None:
    run.run.lock.touch()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (twice, "every iteration exactly once"),
        (other_cause, "causes in jobs.jsonl fit the events"),
        (lost_line, "no log line is lost"),
        (no_log, "every attempt has every rank's log"),
        (orphan, "no process is left"),
        (locked, "the run is free"),
    ],
)
def test_each_damage_is_seen(
    run: QuietRun, monkeypatch: pytest.MonkeyPatch, damage: Callable[[QuietRun], None], what: str
) -> None:
    monkeypatch.setattr("slurm_lab.soak_checks._CLEANUP_S", 0.0)
    damage(run)
    assert failed(run) == [what]
