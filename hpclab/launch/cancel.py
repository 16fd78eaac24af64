"""`hpclab cancel`: end a run for good, wherever it runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from hpclab.errors import LaunchError
from hpclab.launch import jobs, lock
from hpclab.launch.manifest import read_manifest
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.run_folder import RunFolder

_WAIT_S = 120.0
_POLL_S = 0.2


def cancel(run: Path) -> None:
    """End a run, or every run of a sweep: ranks save first where they are still asked to, and no attempt requeues it.

    Raises:
        ConfigError: no run there.
        LaunchError: it runs on another host, or Slurm refuses.
    """
    members = SweepFolder(run.absolute()).runs()
    for member in members:
        _cancel_run(member)
    if not members:
        _cancel_run(RunFolder(run.absolute()))


def _cancel_run(folder: RunFolder) -> None:
    read_manifest(folder)
    owner = lock.read_owner(folder)
    if owner is None or not owner.is_alive():
        print(f"{folder.path}: nothing runs")
        return
    if owner.job_id is None and owner.host != socket.gethostname():
        raise LaunchError(f"{folder.path}: runs as {owner}; call hpclab cancel there")
    # First of all: a rank that stops in good order must not be requeued by its first node.
    folder.cancel_request.touch()
    if owner.job_id is not None:
        _cancel_job(owner.job_id)
        print(f"job {owner.job_id} cancelled; go on with it later: hpclab resume {folder.path}")
        return
    attempts = jobs.read(folder)
    if attempts and attempts[-1].cause is None:
        folder.stop_file(attempts[-1].number).touch()
    os.kill(owner.pid, signal.SIGTERM)
    end = time.monotonic() + _WAIT_S
    while owner.is_alive():
        if time.monotonic() > end:
            raise LaunchError(f"{owner} has not left after {_WAIT_S:.0f} s; end it with: kill -9 {owner.pid}")
        time.sleep(_POLL_S)
    print(f"stopped; go on with it later: hpclab resume {folder.path}")


def _cancel_job(job_id: str) -> None:
    try:
        done = subprocess.run(["scancel", job_id], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(
            f"scancel {job_id} cannot be run here: {error}; call hpclab cancel on a login node"
        ) from error
    if done.returncode != 0:
        raise LaunchError(f"scancel {job_id} failed: {done.stderr.strip() or done.returncode}")
