"""Run hpclab as a user does, in processes of its own, and see what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from hpclab.launch import jobs
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder

TIMEOUT_S = 240.0


@contextmanager
def hpclab(*arguments: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command; at the end of the block it is killed if it still runs."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | variables
    program = [sys.executable, "-c", "from hpclab.cli import main; main()", *map(str, arguments)]
    process = subprocess.Popen(
        program, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and what was printed."""
    output, _ = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output


def wait_for_iteration(run: RunFolder, process: subprocess.Popen[str], iteration: int) -> None:
    """Wait until the run has done this many iterations."""
    end = time.monotonic() + TIMEOUT_S
    while len(iterations(run)) < iteration:
        assert process.poll() is None, f"ended with {finish(process)}"
        assert time.monotonic() < end, f"{iterations(run)} of {iteration} iterations"
        time.sleep(0.1)


def wait_for_attempt(run: RunFolder, process: subprocess.Popen[str], number: int) -> None:
    """Wait until the run has this many attempts, ended ones included."""
    end = time.monotonic() + TIMEOUT_S
    while len(jobs.read(run)) < number:
        assert process.poll() is None, f"ended with {finish(process)}"
        assert time.monotonic() < end, f"{len(jobs.read(run))} of {number} attempts"
        time.sleep(0.1)


def iterations(run: RunFolder) -> list[int]:
    return [line["iteration"] for line in read_curve(run.metrics / "metrics.jsonl")]


def processes_of(run: Path, wait_s: float = 30.0) -> list[str]:
    """Return the agents and ranks of a run that are still there after `wait_s`."""
    end = time.monotonic() + wait_s
    while (left := _marked(run)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _marked(run: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HPCLAB_RUN") == str(run) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
        except psutil.Error:
            continue
    return found
