"""A run of two nodes that is requeued again and again does every iteration once and none too many."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from hpclab.launch import jobs
from hpclab.launch.lock import process_is_alive
from hpclab.run_folder import RunFolder
from tests.launch.commands import TIMEOUT_S, hpclab, iterations, processes_of, wait_for_attempt, wait_for_iteration

pytestmark = pytest.mark.distributed
ITERATIONS = 150
REQUEUES = 2
OPTIONS = ("run.save_interval=1000", "metrics.tensorboard=false", "--local", "--nodes", 2, "--workers-per-node", 1)


def test_requeues_repeat_nothing_and_the_run_completes(tiny: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "tiny")
    arguments = ("submit", tiny, f"run.max_iterations={ITERATIONS}", *OPTIONS)
    with hpclab(*arguments, SLURM_NTASKS="8", RANK="3") as process:
        for attempt in range(REQUEUES):
            wait_for_iteration(run, process, len(iterations(run)) + 2)
            process.send_signal(signal.SIGUSR2)
            wait_for_attempt(run, process, attempt + 2)
        output, _ = process.communicate(timeout=2 * TIMEOUT_S)
        assert process.returncode == 0, output
    assert iterations(run) == list(range(ITERATIONS))
    attempts_made = jobs.read(run)
    assert [one.cause for one in attempts_made] == ["preempted"] * REQUEUES + ["completed"]
    ends = [(one.first_iteration, one.last_iteration) for one in attempts_made]
    assert [first for first, _ in ends] == [0, *(last + 1 for _, last in ends[:-1] if last is not None)]
    assert ends[-1][1] == ITERATIONS - 1
    assert processes_of(run.path) == []
    for attempt in range(REQUEUES + 1):
        assert [run.rank_log(attempt, rank).exists() for rank in range(3)] == [True, True, False]
    _check_handovers(run)


def _check_handovers(run: RunFolder) -> None:
    """Each attempt had an agent of its own on each node, which has ended."""
    agents = [json.loads(file.read_text()) for file in (run.submitit / "handover").glob("*/*.agent")]
    assert len(agents) == 2 * (REQUEUES + 1)
    assert len({(agent["pid"], agent["started"]) for agent in agents}) == len(agents)
    assert not any(process_is_alive(agent["pid"], agent["started"]) for agent in agents)
    assert oct((run.submitit / "handover").stat().st_mode)[-3:] == "700", "commands carry the environment"
