"""The first node's decision, with Slurm's commands recorded and the ranks replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hpclab.errors import WorkerError
from hpclab.launch import jobs, leader, lock
from hpclab.launch.agent_host import AgentHost
from hpclab.launch.handover import Handover
from hpclab.launch.leader import Leader
from hpclab.launch.lock import Owner
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome
from tests.slurm.conftest import FakeSlurm

RUNNING = "echo JobId=11 JobState=RUNNING PreemptTime=None"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "tiny")
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentHost, "run", lambda self: True)
    # The notices stay ignored after a task: not in this process.
    for number in (signal.SIGUSR2, signal.SIGTERM):
        monkeypatch.setattr(signal, "SIG_IGN", signal.getsignal(number))


def lead(run: RunFolder, monkeypatch: pytest.MonkeyPatch, ranks: Any, job_id: str = "11") -> Outcome:
    job = NodeJob(str(run.path), 1, 2, False, walltime_min=600, signal_lead_s=60, torchrunx_logs="")
    node = Node(job_id, 0, ("n1",), restart=0, pseudo=False)
    handover = Handover.of(run, node.job_id, 0)
    lock.acquire(run, Owner.job(job_id))
    monkeypatch.setattr(leader, "launch", ranks)
    return Leader(job, node, handover, AgentHost(job, node, handover)).run(through_submitit=False)


def stopped_by(number: signal.Signals | None, run: RunFolder) -> Any:
    def ranks(*_: object, **__: object) -> Outcome:
        if number is not None:
            os.kill(os.getpid(), number)
            while not run.stop_file(0).exists():
                pass
        return Outcome("stopped", 5, 100)

    return ranks


@pytest.mark.usefixtures("no_agent")
def test_a_notice_ends_in_a_requeue(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.command("scontrol", RUNNING)
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run))
    assert left.value.code != 0
    assert slurm.calls() == ["scontrol show job -o 11", "scontrol requeue 11"]
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
def test_without_scontrol_the_run_is_saved_and_the_way_on_is_said(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.command("scontrol", "exit 1")
    monkeypatch.setattr(leader.time, "sleep", lambda seconds: None)
    with pytest.raises(SystemExit) as left:
        lead(run, monkeypatch, stopped_by(signal.SIGUSR2, run))
    assert left.value.code != 0
    assert f"Go on with: hpclab resume {run.path}" in capsys.readouterr().out
    assert not run.lock.exists()


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
def test_a_failed_run_is_reported_and_not_requeued(
    slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranks(*_: object, **__: object) -> Outcome:
        raise RuntimeError("boom")

    with pytest.raises(WorkerError, match="RuntimeError: boom"):
        lead(run, monkeypatch, ranks)
    assert slurm.calls() == []
    assert jobs.read(run)[0].cause == "crashed"
    assert Handover.of(run, "11", 0).get("outcome") == "failed"


@pytest.mark.usefixtures("no_agent")
def test_a_complete_run_frees_its_folder(slurm: FakeSlurm, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = lead(run, monkeypatch, lambda *_, **__: Outcome("completed", 5, 100))
    assert outcome.kind == "completed"
    assert jobs.read(run)[0].cause == "completed"
    assert not run.lock.exists()
    assert slurm.calls() == []
