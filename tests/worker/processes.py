"""Ranks as a launcher starts them: processes that read their place from the environment and end with an exit code."""

import os
import signal
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from hpclab.run_folder import RunFolder
from hpclab.worker.main import run_worker
from hpclab.worker.spec import Outcome, WorkerSpec
from tests.distributed.ranks import fork_server


class Ranks:
    """Two ranks of one run; a context manager that leaves none behind."""

    def __init__(self, run: RunFolder, before: Callable[[], None] | None = None) -> None:
        """Start them; each calls `before` first."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = fork_server()
        self._processes: list[Any] = []
        self._outcomes: list[Connection] = []
        for rank in range(2):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
            environment = {name: str(value) for name, value in place.items()}
            environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
            receiver, sender = server.Pipe(duplex=False)
            payload = cloudpickle.dumps((str(run.path), environment, before))
            process = server.Process(target=_work, args=(payload, sender), daemon=True)
            process.start()
            sender.close()
            self._processes.append(process)
            self._outcomes.append(receiver)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process, outcome in zip(self._processes, self._outcomes, strict=True):
            process.kill()
            process.join()
            outcome.close()

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self._processes[rank].pid, number)

    def end(self, timeout_s: float = 60.0) -> list[tuple[int | None, Outcome | None]]:
        """Wait for both ranks; return exit code and outcome of each."""
        ended: list[tuple[int | None, Outcome | None]] = []
        for process, outcome in zip(self._processes, self._outcomes, strict=True):
            process.join(timeout_s)
            try:
                ended.append((process.exitcode, outcome.recv() if outcome.poll() else None))
            except EOFError:
                ended.append((process.exitcode, None))
        return ended


def _work(payload: bytes, sender: Connection) -> None:
    path, environment, before = cloudpickle.loads(payload)
    os.environ.update(environment)
    if before is not None:
        before()
    sender.send(run_worker(WorkerSpec(path, 0, ("cpu", "cpu"), console=False)))


def wait_for_file(path: Path, ready: Callable[[str], bool], timeout_s: float = 60.0) -> None:
    """Wait until the file's text satisfies `ready`."""
    deadline = time.monotonic() + timeout_s
    while not (path.exists() and ready(path.read_text())):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
