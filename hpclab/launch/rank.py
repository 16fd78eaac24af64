"""What torchrunx runs as one rank: it knows its node's devices, ties its life to the agent's, and trains."""

from __future__ import annotations

import os
from dataclasses import replace

from hpclab.launch.detached import die_with_parent
from hpclab.launch.devices import node_gpus
from hpclab.worker.spec import Outcome, WorkerSpec


def run_rank(spec: WorkerSpec, devices_by_node: tuple[tuple[str, ...], ...] | None) -> Outcome:
    """Train as one rank of a launch.

    Args:
        spec: the work; without `devices` they are the GPUs that Slurm gave this node.
        devices_by_node: devices by node and local rank, where the launcher knows them.
    """
    die_with_parent()  # an agent that is killed leaves no ranks behind
    if devices_by_node is not None:
        spec = replace(spec, devices=devices_by_node[int(os.environ["GROUP_RANK"])])
    elif not spec.devices:
        spec = replace(spec, devices=node_gpus(int(os.environ["LOCAL_WORLD_SIZE"])))
    from hpclab.worker.main import run_worker

    return run_worker(spec)
