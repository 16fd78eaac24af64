"""The first node's decision, with Slurm's commands recorded and the ranks replaced."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from hpclab.errors import ConfigError, WorkerError
from hpclab.launch import jobs, lock
from hpclab.launch.handover import Handover
from hpclab.launch.lock import Owner
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome
from tests.slurm.conftest import FakeSlurm
from tests.slurm.leading import RUNNING, boom, lead, stopped_by


@pytest.mark.usefixtures("no_agent")
def test_a_notice_ends_in_a_requeue(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.command("scontrol", RUNNING)
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run))
    assert left.value.code != 0
    assert slurm.calls() == [*["scontrol show job -o 11"] * 2, "scontrol requeue 11"]
    assert jobs.read(run)[0].cause == "preempted"
    assert run.lock.exists(), "the requeued job still owns the run"
    assert Handover.of(run, "11", 0).get("outcome") == "interrupted"
    assert Handover.of(run, "11", 0).has("left")


@pytest.mark.usefixtures("no_agent")
def test_an_array_member_is_requeued_by_its_own_name(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", RUNNING)
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run), job_id="11_1")
    assert slurm.calls()[-1] == "scontrol requeue 11_1"


@pytest.mark.usefixtures("no_agent")
def test_a_cancelled_job_is_never_requeued(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.command("scontrol", "echo JobId=11 JobState=COMPLETING PreemptTime=None")
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(signal.SIGTERM, run))
    assert slurm.calls() == ["scontrol show job -o 11"]
    assert jobs.read(run)[0].cause == "cancelled"
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
@pytest.mark.parametrize("there", [True, False], ids=["scontrol refuses", "no scontrol on this node"])
def test_without_scontrol_the_run_is_saved_and_the_way_on_is_said(
    slurm: FakeSlurm,
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    there: bool,
) -> None:
    slurm.command("scontrol", "exit 1")
    if not there:
        (slurm.folder / "bin" / "scontrol").unlink()
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run))
    assert left.value.code != 0
    assert f"Go on with: hpclab resume {run.path}" in capsys.readouterr().out
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_a_stale_temporary_pickle_does_not_block_the_requeue(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import submitit

    slurm.command("scontrol", RUNNING)
    pickle = run.path / "11_submitted.pkl"
    stale = pickle.with_suffix(".pkl.save_tmp")
    stale.write_bytes(b"half of a pic")  # a killed attempt was writing it
    place = SimpleNamespace(paths=SimpleNamespace(submitted_pickle=pickle))
    monkeypatch.setattr(submitit, "JobEnvironment", lambda: place)

    def requeue(*_: object) -> None:  # submitit's handler
        assert not stale.exists()
        sys.exit(9)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit) as left:
            lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run), through_submitit=True)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert left.value.code == 9


@pytest.mark.usefixtures("no_agent")
def test_completed_between_two_attempts_is_one_run(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", RUNNING)
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run))
    for state in ("RUNNING", "COMPLETING", "PENDING Reason=BeginTime"):
        slurm.command("scontrol", f"echo JobId=11 JobState={state} Restarts=1")
        with pytest.raises(ConfigError, match="in use by Slurm job 11"):
            lock.acquire(run, Owner.job("12"))
    slurm.command("scontrol", RUNNING)
    assert lead(run, monkeypatch, lambda *_, **__: Outcome("completed", 9, 100), restart=1).kind == "completed"
    assert [(one.number, one.job_id, one.cause) for one in jobs.read(run)] == [
        (0, "11", "preempted"),
        (1, "11", "completed"),
    ]


@pytest.mark.usefixtures("no_agent")
def test_a_refused_requeue_frees_the_run(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.command("scontrol", f'[ "$1" = requeue ] && exit 1; {RUNNING}')
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, stopped_by(None, run))
    assert left.value.code != 0
    assert "not requeued: Slurm refused the requeue" in capsys.readouterr().out
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_a_requeue_whose_signal_ends_scontrol_too_is_a_requeue(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requeue = '[ "$1" = requeue ] && touch $RECORDS/taken && kill $$'
    slurm.command("scontrol", f"{requeue}; {RUNNING} Restarts=$(test -e $RECORDS/taken; echo $((1 - $?)))")
    with pytest.raises(SystemExit):
        lead(run, monkeypatch, stopped_by(None, run))
    assert "not requeued" not in capsys.readouterr().out
    assert run.lock.exists(), "the requeued job still owns the run"
    assert run.jobs.read_text().count('"end"') == 1


@pytest.mark.usefixtures("no_agent")
def test_a_crash_is_requeued_within_its_budget_and_then_fails(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", RUNNING)
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, boom)
    assert left.value.code != 0
    assert slurm.calls() == [*["scontrol show job -o 11"] * 2, "scontrol requeue 11"]
    assert Handover.of(run, "11", 0).get("outcome") == "interrupted"
    with pytest.raises(WorkerError, match=r"RuntimeError: boom.*; not requeued: crashed 2 times"):
        lead(run, monkeypatch, boom, restart=1)
    assert slurm.calls()[3:] == []
    first, second = jobs.read(run)
    assert (first.cause, second.cause) == ("crashed", "crashed")
    assert "RuntimeError: boom" in first.note
    assert run.jobs.read_text().count('"end"') == 2, "each end is recorded once"
    assert Handover.of(run, "11", 1).get("outcome") == "failed"
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_a_crash_without_a_budget_fails_at_once(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.config.write_text("task: cartpole-balance\nslurm: {requeue: {crashed: 0}}\n")
    with pytest.raises(WorkerError, match="RuntimeError: boom"):
        lead(run, monkeypatch, boom)
    assert slurm.calls() == []
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_a_crash_of_a_job_that_slurm_ends_or_a_user_cancelled_is_not_requeued(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", "echo JobId=11 JobState=COMPLETING PreemptTime=None")
    with pytest.raises(WorkerError, match="boom"):
        lead(run, monkeypatch, boom)
    assert not any("requeue" in call for call in slurm.calls())


@pytest.mark.usefixtures("no_agent")
def test_a_lost_node_is_named_and_has_its_own_budget(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.command("scontrol", RUNNING)

    def ranks(*_: object, **__: object) -> Outcome:
        # srun ends the step when a node's task dies: TERM, and only the other node's ranks still say something.
        os.kill(os.getpid(), signal.SIGTERM)
        while not run.stop_file(0).exists():
            pass
        record = {"time": 1.0, "host": "n1", "rank": 0, "iteration": 3, "error": "peer gone", "in_collective": True}
        run.rank_error(0, 0).write_text(json.dumps(record))
        raise RuntimeError("boom")

    with pytest.raises(SystemExit):
        lead(run, monkeypatch, ranks, hosts=("n1", "n2"))
    (attempt,) = jobs.read(run)
    assert attempt.cause == "node_failure"
    assert attempt.note.startswith("n2: no word from this node")
    assert slurm.calls()[-1] == "scontrol requeue 11"


@pytest.mark.usefixtures("no_agent")
def test_attempts_that_stand_still_end_the_job(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.command("scontrol", RUNNING)
    for restart in range(3):
        with pytest.raises(SystemExit) as left:
            lead(run, monkeypatch, stopped_by(None, run), restart=restart)
        assert left.value.code != 0
    assert sum("requeue" in call for call in slurm.calls()) == 2
    assert [attempt.cause for attempt in jobs.read(run)] == ["preempted", "preempted", "no_progress"]
    assert "finished no new iteration" in jobs.read(run)[-1].note
    assert run.jobs.read_text().count('"end"') == 3
    assert f"Go on with: hpclab resume {run.path}" in capsys.readouterr().out
    assert not run.lock.exists()


@pytest.mark.usefixtures("no_agent")
def test_slurms_own_requeues_are_counted_before_the_next_attempt(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.config.write_text("task: cartpole-balance\nslurm: {requeue: {node_failure: 0}}\n")
    jobs.begin(run, "slurm", hosts=["n1"], num_workers=2, job_id="11")  # and its node lost power
    with pytest.raises(WorkerError, match=r"not started again: node_failure 1 time .*hpclab resume"):
        lead(run, monkeypatch, boom, restart=1)
    assert [attempt.cause for attempt in jobs.read(run)] == ["node_failure"]
    assert not run.lock.exists()
    # A user who resumes starts another job: that one begins.
    outcome = lead(run, monkeypatch, lambda *_, **__: Outcome("completed", 5, 100), job_id="12")
    assert outcome.kind == "completed"


@pytest.mark.usefixtures("no_agent")
def test_a_complete_run_frees_its_folder(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = lead(run, monkeypatch, lambda *_, **__: Outcome("completed", 5, 100))
    assert outcome.kind == "completed"
    assert jobs.read(run)[0].cause == "completed"
    assert not run.lock.exists()
    assert slurm.calls() == []


@pytest.mark.usefixtures("no_agent")
def test_the_walltimes_end_needs_no_notice(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.command("scontrol", RUNNING)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 50))

    def ranks(*_: object, **__: object) -> Outcome:
        while not run.stop_file(0).exists():
            pass
        return Outcome("stopped", 5, 100)

    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, ranks)
    assert left.value.code != 0
    assert slurm.calls()[-1] == "scontrol requeue 11"
    (attempt,) = jobs.read(run)
    assert (attempt.cause, attempt.note) == ("timeout", "the walltime is nearly over")
    assert "the walltime's end is near: the ranks save and stop" in run.launcher_log(0).read_text()


@pytest.mark.usefixtures("no_agent")
def test_a_notice_that_comes_too_late_is_warned_of(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.metrics.mkdir()
    run.save_time.write_text('{"save_s": 100.0}')

    def ranks(*_: object, **__: object) -> Outcome:
        while "warning" not in run.launcher_log(0).read_text():
            pass
        return Outcome("completed", 5, 100)

    lead(run, monkeypatch, ranks)
    assert "set slurm.signal_lead_s=230" in run.launcher_log(0).read_text()
