from __future__ import annotations

import json

import pytest

from hpclab.errors import WorkerError
from hpclab.launch.agent_host import AgentHost
from hpclab.launch.handover import Handover
from hpclab.launch.leader import Leader
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.run_folder import RunFolder


def test_an_agent_that_ended_before_its_ranks_began_is_named(run: RunFolder) -> None:
    job = NodeJob(str(run.path), 2, 1, use_gpus=False, walltime_min=60, signal_lead_s=120, torchrunx_logs="")
    node = Node("11", 0, ("n1", "n2"), 0, pseudo=False)
    handover = Handover.of(run, node.job_id, node.restart)
    leader = Leader(job, node, handover, AgentHost(job, node, handover))
    leader._check_agents()
    handover.put("1.gone", json.dumps({"code": 1, "time": 0.0}))
    with pytest.raises(WorkerError, match="n2: its agent ended with exit code 1 before its ranks began"):
        leader._check_agents()
