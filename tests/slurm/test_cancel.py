"""`hpclab cancel`, and what Slurm's commands are asked and say on the way, with the commands recorded."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hpclab.errors import LaunchError
from hpclab.launch import jobs, lock, queue
from hpclab.launch.cancel import cancel
from hpclab.launch.partition import may_take_later
from hpclab.run_folder import RunFolder
from tests.slurm.conftest import FakeSlurm, Submit


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "tiny")


def test_the_job_is_cancelled_after_a_word_was_left_for_it(slurm: FakeSlurm, submit: Submit, run: RunFolder) -> None:
    submit()
    slurm.command("scancel", f"test -e {run.cancel_request}")
    cancel(run.path)
    assert slurm.calls()[-1] == "scancel 11"


def test_a_users_settings_for_slurms_commands_hide_and_spare_nothing(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scancel would spare what waits, ask without end, and report success; squeue would not list the job."""
    submit()
    own = {"SCANCEL_STATE": "RUNNING", "SCANCEL_INTERACTIVE": "true", "SQUEUE_STATES": "RUNNING", "SLURM_CLUSTERS": "a"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    seen = "env | grep -E '^(SCANCEL_|SQUEUE_|SLURM_CL)'; [ ! /dev/stdin -ef /dev/null ] && echo asked"
    slurm.command("scontrol", "exit 1")
    slurm.command("squeue", f"({seen}) >> {run.path}/seen; echo '11 11_N/A'")
    slurm.command("scancel", f"({seen}) >> {run.path}/seen; true")
    cancel(run.path)
    assert "scancel 11" in slurm.calls()
    assert set((run.path / "seen").read_text().splitlines()) == {"SLURM_CLUSTERS=a"}


@pytest.mark.parametrize("there", [True, False], ids=["it goes on", "it had just ended"])
def test_a_scancel_that_fails_matters_only_while_the_job_is_there(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    submit()
    end = "" if there else f"echo '#!/bin/sh\necho JobId=11 JobState=COMPLETED' > {slurm.folder}/bin/scontrol; "
    slurm.command("scancel", f"{end}echo 'Socket timed out' >&2; exit 1")
    if not there:
        cancel(run.path)
        assert "job 11 cancelled" in capsys.readouterr().out
        return
    with pytest.raises(LaunchError, match=r"scancel 11 failed: Socket timed out; if it goes on, it saves and ends"):
        cancel(run.path)
    assert run.cancel_request.exists()


def test_one_member_that_cannot_be_cancelled_spares_no_other(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(sweep=["seed=1..3"])
    (run.path / "tiny-000" / "run.json").unlink()
    slurm.command("scancel", "[ $1 != 11_1 ] || { echo no >&2; exit 1; }")
    with pytest.raises(LaunchError, match=r"2 of 3 runs of .*tiny may go on; call hpclab cancel again"):
        cancel(run.path)
    assert [call for call in slurm.calls() if call.startswith("scancel")] == ["scancel 11_1", "scancel 11_2"]
    said = capsys.readouterr().err.splitlines()
    assert ["holds no run" in line or "scancel 11_1 failed: no" in line for line in said] == [True, True]


def test_a_job_that_is_on_its_way_back_is_no_job_that_has_ended(
    slurm: FakeSlurm, submit: Submit, run: RunFolder
) -> None:
    submit()
    number = jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")
    jobs.finish(run, number, "preempted")
    slurm.command("scontrol", "echo JobId=11 JobState=COMPLETED Restarts=1")
    cancel(run.path)
    assert run.cancel_request.exists()
    assert slurm.calls()[-1] == "scancel 11"


def test_a_submission_that_came_through_meanwhile_is_cancelled_as_a_job(
    slurm: FakeSlurm, submit: Submit, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit()
    lock.hand_over(run, lock.Owner.this_process())

    def signalled(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(lock, "process_is_alive", lambda *_: False)
        lock.hand_over(run, lock.Owner.job("11"))

    monkeypatch.setattr(os, "kill", signalled)
    cancel(run.path)
    assert slurm.calls()[-1] == "scancel 11"


def test_what_a_sites_wrapper_prints_first_is_passed_over(slurm: FakeSlurm) -> None:
    banner = "echo 'warning: this command moves to /opt/new next week'"
    slurm.command("scontrol", f"{banner}; echo JobId=11 JobState=RUNNING Reason=None Restarts=2")
    slurm.command("sinfo", f"{banner}; echo; echo 'n1 down*'; echo 'n2 idle'")
    assert queue.ask("11") == queue.JobInfo("RUNNING", restarts=2)
    assert queue.down_nodes(["n1", "n2"]) == ["n1"]
    slurm.command("sinfo", f"{banner}; echo 'low* n1 drained'")
    assert may_take_later(None, 1)


def test_each_waiting_member_of_an_array_is_listed(slurm: FakeSlurm) -> None:
    slurm.command("scontrol", "exit 1")
    slurm.command("squeue", "[[ $* = *-r* ]] && printf '11 11_0\\n11 11_1\\n' || echo '11 11_[0-1]'")
    assert queue.is_queued("11_1")
    assert not queue.is_queued("11_2")
