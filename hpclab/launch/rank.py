"""What torchrunx runs as one rank: it knows its node's devices, ties its life to the agent's, and trains."""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from dataclasses import replace
from pathlib import Path

from hpclab.launch.detached import die_with_parent
from hpclab.launch.devices import node_gpus
from hpclab.launch.kernel_cache import turn_file
from hpclab.run_folder import RunFolder, write_atomic
from hpclab.worker.spec import Outcome, WorkerSpec


def run_rank(spec: WorkerSpec, devices_by_node: tuple[tuple[str, ...], ...] | None) -> Outcome:
    """Train as one rank of a launch.

    A rank that fails never returns: torchrunx would keep its exception until all ranks have ended, and the others wait
    for this one. `run_worker` sees to that itself; here it holds for what goes wrong before it can.

    Args:
        spec: the work; without `devices` they are the GPUs that Slurm gave this node.
        devices_by_node: devices by node and local rank, where the launcher knows them.
    """
    die_with_parent()  # an agent that is killed leaves no ranks behind
    try:
        if devices_by_node is not None:
            spec = replace(spec, devices=devices_by_node[int(os.environ["GROUP_RANK"])])
        elif not spec.devices:
            spec = replace(spec, devices=node_gpus(int(os.environ["LOCAL_WORLD_SIZE"])))
        spec = replace(spec, kernel_turn=turn_file(os.environ))
        from hpclab.worker.main import run_worker

        return run_worker(spec)
    except BaseException as error:
        try:
            _record(RunFolder(Path(spec.run_folder)), spec.attempt, int(os.environ["RANK"]), error)
        finally:
            os._exit(1)


def _record(run: RunFolder, attempt: int, rank: int, error: BaseException) -> None:
    path = run.rank_error(attempt, rank)
    if path.exists():
        return
    record = {
        "time": time.time(),
        "host": socket.gethostname(),
        "rank": rank,
        "iteration": None,
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }
    write_atomic(path, json.dumps(record, indent=1) + "\n")
