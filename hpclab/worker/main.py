"""One rank from start to end: its device, its log, its signals, and how it fails.

Nothing here imports torch, so that variables which GPU and thread libraries read when they load are set before.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path

from hpclab.errors import HpclabError, LaunchError, WorkerError
from hpclab.metrics.rank_logs import capture_all, tee_logging
from hpclab.run_folder import RunFolder
from hpclab.worker.context import WorkerContext
from hpclab.worker.failure import FailureReport, describe
from hpclab.worker.spec import Outcome, WorkerSpec
from hpclab.worker.stop import StopRequest
from hpclab.worker.threads import limit_spinning

__all__ = ["Outcome", "WorkerSpec", "run_worker"]

_LOGGER = logging.getLogger(__name__)


def run_worker(spec: WorkerSpec, context: WorkerContext | None = None) -> Outcome:
    """Train as one rank until the run is complete or asked to stop.

    Args:
        spec: the work.
        context: this rank's place; read from the environment that a launcher set when not given.

    Returns:
        How it ended; the same on every rank. A rank of a launcher that fails does not return: it ends with code 1.

    Raises:
        HpclabError: in a process of its own, what went wrong; WorkerError for anything unforeseen.
        LaunchError: the environment does not say which rank this is.
        KeyboardInterrupt: in a process of its own, at the second Ctrl-C.
    """
    launched = context is None or context.world_size > 1
    context = context or WorkerContext.from_environment()
    if spec.master_addr is not None:
        context = dataclasses.replace(context, master_addr=spec.master_addr)
    run = RunFolder(Path(spec.run_folder))
    log = run.rank_log(spec.attempt, context.rank)
    failure = FailureReport(run, spec.attempt, context.rank, launched=launched)
    stop = StopRequest(
        run.stop_file(spec.attempt), rank=context.rank, launched=launched, on_closed=failure.record_closed
    )
    try:
        with capture_all(log) if launched else tee_logging(log), failure, stop:
            limit_spinning(os.environ)
            on_cpu = _select_device(spec.devices, context.local_rank)
            from hpclab.worker.compose import train

            return train(spec, run, context, stop, failure, on_cpu=on_cpu)
    except HpclabError:
        raise
    except (Exception, SystemExit) as error:
        iteration = failure.iteration()
        where = f" at iteration {iteration}" if iteration is not None else ""
        raise WorkerError(f"training failed{where}: {describe(error)}. The traceback is in {log}") from error


def _select_device(devices: tuple[str, ...], local_rank: int) -> bool:
    """Make this rank's device the only one that this process can see; return whether it is the CPU."""
    if local_rank >= len(devices):
        raise LaunchError(f"local rank {local_rank} has no device among {', '.join(devices) or 'none'}")
    device = devices[local_rank]
    on_cpu = device == "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if on_cpu else device
    return on_cpu
