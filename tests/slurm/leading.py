"""The first node's part of a job, with the ranks replaced: for tests of what it decides and does afterwards."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from hpclab.launch import leader, lock
from hpclab.launch.agent_host import AgentHost
from hpclab.launch.handover import Handover
from hpclab.launch.leader import Leader
from hpclab.launch.lock import Owner
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome

RUNNING = "echo JobId=11 JobState=RUNNING PreemptTime=None"


def lead(
    run: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    ranks: Any,
    job_id: str = "11",
    hosts: tuple[str, ...] = ("n1",),
    restart: int = 0,
    through_submitit: bool = False,
    submitter: Owner | None = None,
    handed_over: bool = True,
) -> Outcome:
    job = NodeJob(
        str(run.path), 1, 2, False, walltime_min=600, signal_lead_s=60, torchrunx_logs="", submitter=submitter
    )
    node = Node(job_id, 0, hosts, restart=restart, pseudo=False)
    handover = Handover.of(run, node.job_id, restart)
    if restart == 0 and handed_over:
        lock.acquire(run, Owner.job(job_id))
    monkeypatch.setattr(leader, "launch", ranks)
    return Leader(job, node, handover, AgentHost(job, node, handover)).run(through_submitit=through_submitit)


def stopped_by(number: signal.Signals | None, run: RunFolder) -> Any:
    def ranks(*_: object, **__: object) -> Outcome:
        if number is not None:
            os.kill(os.getpid(), number)
            while not run.stop_file(0).exists():
                pass
        return Outcome("stopped", 5, 100)

    return ranks


def boom(*_: object, **__: object) -> Outcome:
    raise RuntimeError("boom")
