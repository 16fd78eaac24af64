from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import lock
from hpclab.launch.lock import Owner
from hpclab.run_folder import RunFolder


def test_a_live_owner_keeps_others_out(run: RunFolder) -> None:
    me = Owner.this_process()
    with lock.held(run, me):
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} on "):
            lock.acquire(run, me)
        with pytest.raises(ConfigError, match="in use by"):
            lock.refuse_if_owned(run, me)
    assert os.listdir(run.path) == []  # noqa: PTH208


def test_a_dead_owner_does_not(run: RunFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        dead = replace(Owner.this_process(), pid=child.pid)
    run.lock.write_text(json.dumps(asdict(dead)))
    me = Owner.this_process()
    lock.acquire(run, me)
    assert lock.read_owner(run) == me


def test_a_later_process_with_the_same_id_is_not_the_owner(run: RunFolder) -> None:
    assert not replace(Owner.this_process(), started=Owner.this_process().started - 1000).is_alive()


def test_an_owner_on_another_host_counts_as_alive(run: RunFolder) -> None:
    run.lock.write_text(json.dumps(asdict(replace(Owner.this_process(), host="elsewhere"))))
    with pytest.raises(ConfigError, match=f"if that process is gone, remove {run.lock}"):
        lock.acquire(run, Owner.this_process())


@pytest.mark.parametrize(
    ("scontrol", "squeue", "alive"),
    [
        ("echo JobId=11 JobState=RUNNING", "exit 1", True),
        ("echo JobId=11 JobState=PENDING", "exit 1", True),
        ("echo JobId=11 JobState=COMPLETED", "exit 1", False),
        ("exit 1", "echo '12 12_N/A'", False),
        ("exit 1", "echo '11 11_N/A'", True),
        ("exit 1", "exit 1", True),  # Slurm is down: better not to start a second job
    ],
)
def test_a_job_owns_its_run_as_long_as_slurm_has_it(
    program: Callable[[str, str], None], scontrol: str, squeue: str, alive: bool
) -> None:
    program("scontrol", scontrol)
    program("squeue", squeue)
    assert Owner.job("11").is_alive() is alive


def test_a_requeued_job_finds_its_own_lock(run: RunFolder, program: Callable[[str, str], None]) -> None:
    program("scontrol", "echo JobId=11 JobState=RUNNING")
    with lock.held(run, Owner.job("11")):
        pass
    assert run.lock.exists(), "a job holds its run until it ends"
    lock.acquire(run, Owner.job("11"))
    with pytest.raises(ConfigError, match="in use by Slurm job 11"):
        lock.acquire(run, Owner.job("12"))


def test_a_lock_handed_over_is_not_released(run: RunFolder) -> None:
    with lock.held(run, Owner.this_process()):
        lock.hand_over(run, Owner.job("11"))
    owner = lock.read_owner(run)
    assert owner is not None
    assert owner.job_id == "11"


def test_a_file_that_is_no_lock_is_named(run: RunFolder) -> None:
    run.lock.write_text("mine")
    with pytest.raises(ConfigError, match="not a lock of this program"):
        lock.acquire(run, Owner.this_process())
