"""`hpclab cancel`: end a run for good, wherever it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from hpclab.errors import HpclabError, LaunchError
from hpclab.launch import jobs, lock, queue
from hpclab.launch.job_state import state_of
from hpclab.launch.manifest import read_manifest
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.run_folder import RunFolder

_WAIT_S = 120.0
_POLL_S = 0.2
_SCANCEL_S = 60.0


def cancel(run: Path) -> None:
    """End a run, or every run of a sweep: ranks save first where they are still asked to, and no attempt requeues it.

    Raises:
        ConfigError: no run there.
        LaunchError: it runs on another host, or Slurm refuses; the other runs of a sweep are ended all the same.
    """
    folder = RunFolder.at(run)
    members = SweepFolder(folder.path).runs()
    if not members:
        _cancel_run(folder)
    problems = []
    for member in members:
        try:
            _cancel_run(member)
        except HpclabError as error:
            problems.append(error)
            print(error, file=sys.stderr)
    if problems:
        raise LaunchError(f"{len(problems)} of {len(members)} runs of {run} may go on; call hpclab cancel again")


def _cancel_run(folder: RunFolder) -> None:
    read_manifest(folder)
    owner = lock.read_owner(folder)
    if owner is None or not (owner.is_alive() or _comes_back(folder, owner)):
        print(f"{folder.path}: nothing runs")
        return
    if owner.job_id is None and owner.host != socket.gethostname():
        raise LaunchError(f"{folder.path}: runs as {owner}; call hpclab cancel there")
    # First of all: a rank that stops in good order must not be requeued by its first node.
    folder.cancel_request.touch()
    if owner.job_id is None:
        _end_process(folder, owner)
        owner = lock.read_owner(folder)  # a submission may have come through meanwhile
    if owner is not None and owner.job_id is not None:
        _cancel_job(folder, owner.job_id)
        print(f"job {owner.job_id} cancelled; go on with it later: hpclab resume {folder.argument}")
        return
    print(f"stopped; go on with it later: hpclab resume {folder.argument}")


def _comes_back(folder: RunFolder, owner: lock.Owner) -> bool:
    """Whether Slurm shows a job as ended only until it has put it back into its queue."""
    return state_of(owner, jobs.read(folder), cancel_requested=False).name == "requeued"


def _end_process(folder: RunFolder, owner: lock.Owner) -> None:
    attempts = jobs.read(folder)
    if attempts and attempts[-1].cause is None:
        folder.stop_file(attempts[-1].number).touch()
    with contextlib.suppress(ProcessLookupError):
        os.kill(owner.pid, signal.SIGTERM)
    end = time.monotonic() + _WAIT_S
    while owner.is_alive():
        if time.monotonic() > end:
            raise LaunchError(f"{owner} has not left after {_WAIT_S:.0f} s; end it with: kill -9 {owner.pid}")
        time.sleep(_POLL_S)


def _cancel_job(folder: RunFolder, job_id: str) -> None:
    later = f"if it goes on, it saves and ends at its next notice; end it now with: hpclab cancel {folder.argument}"
    try:
        done = queue.run_command("scancel", job_id, timeout_s=_SCANCEL_S)
    except FileNotFoundError:
        raise LaunchError(f"there is no scancel here; call hpclab cancel {folder.argument} on a login node") from None
    except subprocess.TimeoutExpired:
        raise LaunchError(f"scancel {job_id} has not answered for {_SCANCEL_S:.0f} s; {later}") from None
    if done.returncode != 0 and queue.is_queued(job_id) is not False:
        raise LaunchError(f"scancel {job_id} failed: {done.stderr.strip() or done.returncode}; {later}")
