"""A node whose task was killed for lack of memory is named by srun's words in the output of the job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.launch import jobs
from hpclab.launch.ends import close_lost
from hpclab.launch.failures import first_error
from hpclab.launch.handover import Handover
from hpclab.launch.lost import lost_node
from hpclab.launch.starved_tasks import start_words
from hpclab.run_folder import RunFolder

Program = Callable[[str, str], None]


def words(hosts: str, tasks: str = "task 1") -> str:
    return f"srun: error: {hosts}: {tasks}: Out Of Memory\nsrun: launch/slurm: _step_signal: Terminating StepId=11.0\n"


def starts(run: RunFolder, attempt: int) -> str:
    return f"2026-01-01 00:00:00 n1 {start_words(run, attempt)}job 11, nodes n1, n2, n3\n"


def begin(run: RunFolder) -> int:
    """Begin an attempt with two ranks on each of three nodes, of which only the first one's rank 0 fails in words."""
    attempt = jobs.begin(run, "slurm", hosts=["n1", "n2", "n3"], num_workers=6, job_id="11")
    run.logs(attempt).mkdir(parents=True)
    run.submitit.mkdir(exist_ok=True)
    record = {"time": 1.0, "host": "n1", "rank": 0, "iteration": 3, "error": "closed by peer", "in_collective": True}
    run.rank_error(attempt, 0).write_text(json.dumps(record))
    return attempt


def test_the_starved_nodes_first_rank_is_the_first_error(run: RunFolder) -> None:
    handover = Handover.of(run, "11", 0)
    begin(run)
    lost = lost_node(run, 0, handover, wait_s=0.0)
    assert lost is not None
    assert (lost.host, lost.cause) == ("n2", "node_failure"), "nobody has said why"
    (run.submitit / "11_0_log.out").write_text(starts(run, 0) + words("n3"))
    assert lost_node(run, 0, handover, wait_s=0.0) is None
    assert str(first_error(run, 0)) == (
        "rank 4 on n3 failed: out of memory, the kernel killed its node's task and all its "
        "ranks; raise slurm.memory, or lower env.num_envs"
    )


def test_words_of_another_attempt_of_the_job_do_not_count(run: RunFolder) -> None:
    begin(run)
    begin(run)
    (run.submitit / "11_0_log.out").write_text(starts(run, 0) + words("n3") + starts(run, 1))
    lost = lost_node(run, 1, Handover.of(run, "11", 1), wait_s=0.0)
    assert lost is not None
    assert lost.host == "n2"


def test_a_rank_that_says_why_it_failed_comes_first(run: RunFolder) -> None:
    begin(run)
    (run.submitit / "11_0_log.out").write_text(starts(run, 0) + words("n2"))
    record = {"time": 2.0, "host": "n2", "rank": 2, "iteration": 3, "error": "ValueError: x", "in_collective": False}
    run.rank_error(0, 2).write_text(json.dumps(record))
    assert lost_node(run, 0, Handover.of(run, "11", 0), wait_s=0.0) is None
    assert str(first_error(run, 0)) == "rank 2 on n2 failed at iteration 3: ValueError: x"
    close_lost(run)
    assert jobs.read(run)[0].note.endswith("ValueError: x")


@pytest.mark.parametrize("place", ["the run's folder", "the sweep's folder", "as Slurm says"])
def test_an_attempt_whose_first_node_died_too_is_closed_so(
    run: RunFolder, program: Program, tmp_path: Path, place: str
) -> None:
    """All of a step is killed at once where Slurm is told to; the next one to own the run finds the words."""
    begin(run)
    run.stop_file(0).write_text("SIGTERM received")
    output = {
        "the run's folder": run.submitit / "11_0_log.out",
        "the sweep's folder": run.path.parent / "submitit" / "11_0_log.out",
        "as Slurm says": tmp_path / "with spaces" / "out",
    }[place]
    output.parent.mkdir(exist_ok=True)
    output.write_text(starts(run, 0) + words("n[2-3]", "tasks 1-2"))
    program("scontrol", f'[ "$2" = hostnames ] && printf "n2\\nn3\\n" || echo "   StdErr={output}"')
    close_lost(run)
    (attempt,) = jobs.read(run)
    assert attempt.cause == "crashed"
    assert attempt.note.startswith("killed before it could say so itself: rank 2 on n2 failed: out of memory")
    assert {path.name for path in run.logs(0).glob("error-*")} == {f"error-000{rank}.json" for rank in (0, 2, 4)}


@pytest.mark.parametrize("why", ["a task lived on", "the walltime's end is near"])
def test_what_the_attempt_noted_itself_comes_before_srun(run: RunFolder, program: Program, why: str) -> None:
    """Slurm says so of any task that ever lost a process, a helper of a rank among them."""
    begin(run)
    program("scontrol", "exit 1")
    (run.submitit / "11_0_log.out").write_text(starts(run, 0) + words("n2"))
    run.stop_file(0).write_text("SIGTERM received" if why == "a task lived on" else why)
    if why == "a task lived on":
        run.out_of_memory(0, "n2").touch()
    close_lost(run)
    assert jobs.read(run)[0].cause == ("preempted" if why == "a task lived on" else "timeout")
