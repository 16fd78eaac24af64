"""Which node was lost, told from what the others and its own task wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from hpclab.launch import jobs
from hpclab.launch.handover import Handover
from hpclab.launch.lost import lost_node, note_lost_nodes
from hpclab.run_folder import RunFolder


@pytest.fixture
def handover(run: RunFolder) -> Handover:
    jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=4, job_id="11")
    run.logs(0).mkdir(parents=True)
    return Handover.of(run, "11", 0)


def write_error(run: RunFolder, rank: int, *, in_collective: bool) -> None:
    record = {"time": 1.0, "host": "any", "rank": rank, "iteration": 3, "error": "x", "in_collective": in_collective}
    run.rank_error(0, rank).write_text(json.dumps(record))


def test_a_host_whose_ranks_say_nothing_is_lost(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=True)
    write_error(run, 1, in_collective=True)
    lost = lost_node(run, 0, handover, wait_s=0.0)
    assert lost is not None
    assert (lost.host, lost.cause) == ("n2", "node_failure")


def test_where_the_step_is_ended_nobody_is_waited_for_long(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=True)
    run.stop_file(0).write_text("SIGTERM received")
    start = time.monotonic()
    lost = lost_node(run, 0, handover)
    assert lost is not None
    assert lost.host == "n2"
    assert time.monotonic() - start < 4.0, "srun kills after its KillWait"


def test_a_rank_that_failed_by_itself_is_no_lost_node(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=False)
    assert lost_node(run, 0, handover, wait_s=0.0) is None


def test_nodes_that_both_speak_are_there(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=True)
    write_error(run, 3, in_collective=True)
    assert lost_node(run, 0, handover, wait_s=0.0) is None


def test_an_agents_line_about_a_killed_rank_is_a_word(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=True)
    run.launcher_log(0).write_text("x torchrunx.n2 ERROR worker failed (exitcode: -9) local_rank: 1 (pid: 5)\n")
    assert lost_node(run, 0, handover, wait_s=0.0) is None


def test_a_killed_agent_is_named(run: RunFolder, handover: Handover) -> None:
    write_error(run, 0, in_collective=True)
    handover.put("1.ended", json.dumps({"code": -9, "time": 5.0}))
    lost = lost_node(run, 0, handover)
    assert lost is not None
    assert lost.cause == "crashed"
    assert str(lost) == "n2: its agent ended by SIGKILL"


def test_silence_everywhere_names_nobody(run: RunFolder, handover: Handover) -> None:
    assert lost_node(run, 0, handover, wait_s=0.0) is None


def test_the_stop_file_names_nodes_that_slurm_has_given_up(run: RunFolder, program: Callable[[str, str], None]) -> None:
    run.logs(0).mkdir(parents=True)
    stop_file = run.stop_file(0)
    program("sinfo", "echo n1 allocated; echo n2 idle")
    assert note_lost_nodes(stop_file, ["n1", "n2"]) == []
    assert not stop_file.exists(), "nobody asked for a stop"
    program("sinfo", "echo n1 allocated; echo 'n2 down*'")
    assert note_lost_nodes(stop_file, ["n1", "n2"]) == ["n2"]
    assert stop_file.read_text() == "nodes lost: n2"
    stop_file.write_text("SIGTERM received")
    note_lost_nodes(stop_file, ["n1", "n2"])
    assert stop_file.read_text() == "SIGTERM received; nodes lost: n2"
