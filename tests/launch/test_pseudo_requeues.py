"""A run that is requeued again and again does every iteration once and none too many."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hpclab.launch import jobs
from hpclab.run_folder import RunFolder
from tests.launch.commands import TIMEOUT_S, finish, hpclab, iterations, processes_of, wait_for_iteration

pytestmark = pytest.mark.distributed
ITERATIONS = 150
REQUEUES = 3


def test_three_requeues_repeat_nothing_and_stop_at_the_limit(tiny: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "tiny")
    changes = (f"run.max_iterations={ITERATIONS}", "run.save_interval=1000", "metrics.tensorboard=false")
    with hpclab("submit", tiny, *changes, "--local", "--nodes", 1, "--workers-per-node", 2) as process:
        for _ in range(REQUEUES):
            wait_for_iteration(run, process, len(iterations(run)) + 2)
            attempts = len(jobs.read(run))
            process.send_signal(signal.SIGUSR2)
            while len(jobs.read(run)) == attempts:
                assert process.poll() is None, finish(process)
        output, _ = process.communicate(timeout=2 * TIMEOUT_S)
        assert process.returncode == 0, output
    assert iterations(run) == list(range(ITERATIONS))
    attempts_made = jobs.read(run)
    assert [one.cause for one in attempts_made] == ["preempted"] * REQUEUES + ["completed"]
    ends = [(one.first_iteration, one.last_iteration) for one in attempts_made]
    assert [first for first, _ in ends] == [0, *(last + 1 for _, last in ends[:-1] if last is not None)]
    assert ends[-1][1] == ITERATIONS - 1
    assert processes_of(run.path) == []
