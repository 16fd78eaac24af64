"""What runs on another node of a job under `slurm.agents: ssh`: its agent, for as long as the first node wants it.

The first node starts it through ssh, deaf to notices, and writes one line of JSON: the job, the node and its GPUs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import MutableMapping, Sequence

from hpclab.launch import out_of_memory
from hpclab.launch.agent_host import AgentHost
from hpclab.launch.devices import visible_gpus
from hpclab.launch.handover import Handover
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob


def main() -> None:
    """Run this node's agent to its end, or end it when the input does."""
    payload = json.loads(sys.stdin.buffer.readline())
    values = payload["node"]
    job = NodeJob(**payload["job"])
    node = Node(**(values | {"hosts": tuple(values["hosts"])}))
    if job.use_gpus:
        choose_gpus(os.environ, payload["gpus"], job.workers_per_node)
    deserted = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        deserted.set()

    threading.Thread(target=watch, name="first node", daemon=True).start()
    # The folder was made by the first node; where it is missing, the nodes do not share it.
    folder = Handover.path_of(job.run, node.job_id, node.restart)
    if not folder.is_dir():
        sys.exit(f"{folder}: not there; set run.root to a folder that all nodes share")
    handover = Handover(folder)
    with out_of_memory.watched(job.run, handover, host=node.hosts[node.index]):
        AgentHost(job, node, handover, unwanted=deserted.is_set).run()
    sys.stdout.flush()
    os._exit(0)  # a thread that still reads the input would keep the interpreter


def choose_gpus(variables: MutableMapping[str, str], given: Sequence[str], count: int) -> None:
    """Say which GPUs the workers use, where ssh leads out of what Slurm restricts the job to.

    Args:
        variables: of the agent; changed.
        given: the numbers of the GPUs that Slurm gave the job on this node; empty where it does not say.
        count: workers.
    """
    present = visible_gpus({})
    if len(present) > count and len(given) >= count and set(given) <= set(present):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(given)


if __name__ == "__main__":
    main()
