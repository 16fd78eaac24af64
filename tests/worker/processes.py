"""Ranks as a launcher starts them: processes that read their place from the environment and end with an exit code."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hpclab.run_folder import RunFolder

_RANK = """
import json, sys
{prelude}
from hpclab.worker.main import WorkerSpec, run_worker
outcome = run_worker(WorkerSpec(sys.argv[1], 0, ("cpu", "cpu"), console=False))
print(json.dumps([outcome.kind, outcome.iteration, outcome.env_steps]))
"""


class Ranks:
    """Two ranks of one run; a context manager that leaves none behind."""

    def __init__(self, run: RunFolder, prelude: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._processes = []
        for rank in range(2):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
            environment = os.environ | {name: str(value) for name, value in place.items()}
            environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", _RANK.format(prelude=prelude), str(run.path)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def signal(self, rank: int, number: signal.Signals) -> None:
        self._processes[rank].send_signal(number)

    def end(self, timeout_s: float = 60.0) -> list[tuple[int, list[object] | None]]:
        """Wait for both ranks; return exit code and outcome of each."""
        ended = []
        for process in self._processes:
            output, _ = process.communicate(timeout=timeout_s)
            ended.append((process.returncode, json.loads(output) if output else None))
        return ended


def wait_for_file(path: Path, ready: Callable[[str], bool], timeout_s: float = 60.0) -> None:
    """Wait until the file's text satisfies `ready`."""
    deadline = time.monotonic() + timeout_s
    while not (path.exists() and ready(path.read_text())):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
