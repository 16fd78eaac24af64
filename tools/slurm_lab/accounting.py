"""slurmdbd and its database, on the controller."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from slurm_lab.settings import ClusterError, Layout


def start(layout: Layout) -> list[subprocess.Popen[bytes]]:
    """Start the database and slurmdbd and register the cluster; slurmctld may start afterwards.

    Returns:
        Both processes.


    Raises:
        ClusterError: one of them does not answer within 60 s.
    """
    install = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={layout.database}", "--skip-test-db"]
    if not (layout.database / "mysql").exists():
        subprocess.run([*install, "--auth-root-authentication-method=normal"], stdout=subprocess.DEVNULL, check=True)
    socket = Path("/run/mysqld/mysqld.sock")
    server = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={layout.database}", f"--socket={socket}"]
    # The database holds nothing worth a flush: it ends with the cluster.
    tuning = ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"]
    database = subprocess.Popen([*server, "--skip-networking", "--skip-grant-tables", *tuning])
    _wait("mariadbd", lambda: socket.is_socket())
    slurmdbd = subprocess.Popen(["slurmdbd", "-D"])
    _wait("slurmdbd", lambda: _succeeds(["sacctmgr", "-n", "show", "cluster"]))
    subprocess.run(["sacctmgr", "-i", "add", "cluster", "lab"], check=False)
    return [database, slurmdbd]


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _wait(name: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{name} does not answer after 60 s")
        time.sleep(0.05)
