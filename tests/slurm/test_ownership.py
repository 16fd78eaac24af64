"""A job owns its run while it trains, and one that was cancelled does not come back, whatever meets what."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hpclab.errors import WorkerError
from hpclab.launch import jobs, lock
from hpclab.launch.leader import Leader
from hpclab.launch.lock import Owner
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome
from tests.launch.commands import finish, hpclab
from tests.slurm.conftest import SBATCH, FakeSlurm
from tests.slurm.leading import RUNNING, boom, lead, stopped_by


@pytest.mark.usefixtures("no_agent")
@pytest.mark.parametrize("restart", [0, 1])
def test_a_job_whose_run_was_taken_over_does_not_begin(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, restart: int
) -> None:
    """While it waited to come back, or to begin: its submission was interrupted, and another one came through."""
    lock.acquire(run, Owner.job("12"))
    slurm.command("scontrol", "echo JobId=12 JobState=RUNNING")
    with pytest.raises(WorkerError, match=r"job 11 does not begin: .* in use by Slurm job 12 since"):
        lead(run, monkeypatch, boom, restart=restart, handed_over=False)
    assert jobs.read(run) == []
    assert run.lock.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("sweep", [(), ("--sweep", "seed=1..2")], ids=["run", "sweep"])
def test_a_submission_that_is_interrupted_is_whole_first(
    slurm: FakeSlurm, config: Path, tmp_path: Path, number: signal.Signals, sweep: tuple[str, ...]
) -> None:
    """Slurm had taken the job and nobody knew: the run was free, and its job would have trained beside the next one."""
    told = 'if [ "$1" != --test-only ]; then kill -$NUMBER $PPID $$; fi'
    slurm.command("sbatch", f"{told}\n{SBATCH}")
    with hpclab("submit", config, "--nodes", 1, "--no-snapshot", *sweep, NUMBER=str(int(number))) as process:
        code, said = finish(process)
    assert code == (130 if number == signal.SIGINT else -number)
    assert ("job array:  11" if sweep else "job:        11") in said
    folder = tmp_path / "runs" / "tiny"
    assert len(SweepFolder(folder).runs()) == (2 if sweep else 0)
    for run, job in [(folder / f"tiny-00{k}", f"11_{k}") for k in range(2)] if sweep else [(folder, "11")]:
        owner = lock.read_owner(RunFolder(run))
        assert owner is not None
        assert owner.job_id == job


@pytest.mark.usefixtures("no_agent")
@pytest.mark.parametrize("held", [True, False], ids=["the submission was killed", "it was interrupted"])
def test_a_job_that_was_never_handed_the_run_takes_it(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    submitter = replace(Owner.this_process(), host="login1")  # whose processes nobody here can see
    if held:
        lock.acquire(run, submitter)
    owners = []

    def ranks(*_: object, **__: object) -> Outcome:
        owners.append(lock.read_owner(run))
        return Outcome("completed", 9, 100)

    assert lead(run, monkeypatch, ranks, submitter=submitter, handed_over=False).kind == "completed"
    assert [owner.job_id for owner in owners if owner is not None] == ["11"]
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
@pytest.mark.parametrize("ranks_end", ["stop", "crash"])
def test_a_job_that_is_cancelled_while_it_leaves_does_not_come_back(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, ranks_end: str
) -> None:
    """By plain scancel: `scontrol requeue` brings a job back that is cancelled and COMPLETING."""
    slurm.command("scontrol", f"[ -e $RECORDS/over ] && echo JobId=11 JobState=COMPLETING || {RUNNING}")
    monkeypatch.setattr(Leader, "_wait_for_agents", lambda self: (slurm.folder / "over").touch())

    def crashing(*_: object, **__: object) -> Outcome:
        raise WorkerError("boom")

    with pytest.raises((SystemExit, WorkerError)):
        lead(run, monkeypatch, crashing if ranks_end == "crash" else stopped_by(None, run))
    assert not any("requeue" in call for call in slurm.calls())
    assert jobs.read(run)[0].cause == ("crashed" if ranks_end == "crash" else "cancelled")
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_a_requeue_that_meets_a_cancellation_is_taken_back(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", f'[ "$1" = requeue ] && touch {run.cancel_request}; {RUNNING}')
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(None, run))
    assert slurm.calls()[-2:] == ["scontrol requeue 11", "scancel 11"]


@pytest.mark.usefixtures("no_agent")
def test_a_controller_that_restarts_is_waited_for(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the job is asked about, and once more when it is to be requeued."""
    down = "[ $(wc -l < $RECORDS/calls) -gt 4 ] && [ $(wc -l < $RECORDS/calls) != 6 ] || exit 1"
    slurm.command("scontrol", f"{down}; {RUNNING}")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(None, run))
    show = "scontrol show job -o 11"
    assert slurm.calls() == [*[show] * 6, show, "scontrol requeue 11"]
    assert run.lock.exists()
