from __future__ import annotations

import os

from hpclab.launch.handover import Handover
from hpclab.launch.lock import process_is_alive
from hpclab.launch.node import count_restart, read_restarts
from hpclab.run_folder import RunFolder


def test_files_of_one_attempt_are_not_seen_by_the_next(run: RunFolder) -> None:
    first, second = Handover.of(run, "11", 0), Handover.of(run, "11", 1)
    first.put("0.command", "python")
    assert first.get("0.command") == "python"
    assert second.get("0.command") is None
    assert second.wait_for("0.command", timeout_s=0.0) is None


def test_waiting_prefers_the_first_name_and_ends_with_the_other_side(run: RunFolder) -> None:
    handover = Handover.of(run, "11", 0)
    assert handover.wait_for("outcome", timeout_s=60.0, alive=lambda: False) is None
    handover.put_outcome("completed")
    assert handover.wait_for("0.command", "outcome", timeout_s=60.0) == "outcome"
    handover.put("0.command")
    assert handover.wait_for("0.command", "outcome", timeout_s=60.0) == "0.command"


def test_only_the_user_can_read_what_is_handed_over(run: RunFolder) -> None:
    handover = Handover.of(run, "11", 0)
    handover.put("0.command", "export WANDB_API_KEY=secret")
    assert handover.folder.parent.stat().st_mode & 0o077 == 0
    assert (handover.folder / "0.command").stat().st_mode & 0o077 == 0


def test_processes_can_be_told_dead_or_alive(run: RunFolder) -> None:
    handover = Handover.of(run, "11", 0)
    handover.put_process("0.agent", os.getpid())
    (agent,) = handover.processes()
    assert process_is_alive(agent["pid"], agent["started"])
    assert not process_is_alive(agent["pid"], agent["started"] - 100)


def test_restarts_of_a_local_job_are_counted(run: RunFolder) -> None:
    Handover.of(run, "77", 0)
    assert read_restarts(run, "77") == 0
    count_restart(run, "77", 1)
    assert read_restarts(run, "77") == 1
