"""Start the agents of a job's other nodes over ssh, where srun cannot start tasks there.

On each of those nodes `hpclab.launch.ssh_node` runs the agent as a task of Slurm would. What it needs goes through the
connection's input, not its command line, which every user can read. The input stays open as long as the job wants the
agent: when the first node's process ends in any way, its other end closes, and the agent with all its ranks is ended.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from hpclab.errors import LaunchError
from hpclab.launch.handover import POLL_S, Handover
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob

SSH = (
    *("ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8"),
)
"""Never asks, and gives up a node that has not answered for two minutes."""
DEAF = "trap '' HUP INT TERM USR1 USR2"
"""Notices are for the first node's process; what is ignored stays so in whatever the shell becomes."""
_START_S = 90.0
_TRY_S = 40.0
_GRACE_S = 8.0
"""For a node whose input was closed to end its agent and leave."""
_LAST_LINES = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_ONE_NODE = re.compile(
    r"CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|SLURMD_NODENAME"
    r"|SLURM_(NODEID|PROCID|LOCALID|GTIDS|TASK_PID|CPUS_ON_NODE|GPUS_ON_NODE|JOB_GPUS|STEP_GPUS|TOPOLOGY_.*)"
    r"|(SSH|XDG|DBUS)_.*|HOSTNAME|DISPLAY|PWD|OLDPWD|SHLVL|_"
)


def start_script(environment: Mapping[str, str], program: str, host: str) -> str:
    """Return the shell lines that become `ssh_node` on a node, in the first node's environment and folder.

    Args:
        environment: of the first node's process; what only holds there is left out.
        program: shell words that run Python.
        host: the node.
    """
    kept = {n: v for n, v in environment.items() if _NAME.fullmatch(n) and not _OF_ONE_NODE.fullmatch(n)}
    kept["SLURMD_NODENAME"] = host
    lines = [
        DEAF,
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1",
        *(f"export {name}={shlex.quote(value)}" for name, value in kept.items()),
        f"exec {program} -u -m hpclab.launch.ssh_node",
    ]
    return "\n".join(lines) + "\n"


def unreachable(host: str, origin: str, said: Sequence[str]) -> str:
    """Return what is wrong with a node that ssh does not start anything on, and what to do, in one line."""
    words = said[-1] if said else "no answer"
    return (
        f"{host}: no agent could be started over ssh: {words.rstrip('.')}. Make `ssh {host} true` work on {origin} "
        "without a question and the same paths exist there, or set slurm.agents=tasks"
    )


def check_ssh(host: str, origin: str) -> str | None:
    """Return why ssh does not get from here (`origin`) to a host, in one line; None where it does."""
    if shutil.which("ssh") is None:
        return f"{origin}: there is no ssh here; install its client, or set slurm.agents=tasks"
    try:
        done = subprocess.run(
            [*SSH, "--", host, "exec true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S
        )
    except subprocess.TimeoutExpired:
        return unreachable(host, origin, [])
    lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return unreachable(host, origin, lines) if done.returncode != 0 else None


class SshNodes:
    """The other nodes of a job, each behind one connection."""

    def __init__(
        self,
        job: NodeJob,
        node: Node,
        handover: Handover,
        say: Callable[[str], None],
        *,
        gpus: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Prepare; nothing is started.

        Args:
            job: what runs.
            node: the first one, from which the others are reached.
            handover: where each agent's command lies, and says that it has started.
            say: told what a node prints.
            gpus: by host, the numbers of the GPUs that Slurm gave the job there, where it says so.
        """
        self._job = job
        self._node = node
        self._handover = handover
        self._say = say
        self._gpus = gpus
        self._connections: dict[str, _Connection] = {}

    def start(self, host: str) -> None:
        """Start a node's agent, whose command lies in the handover; once all are started, wait until they run.

        Raises:
            LaunchError: one of them cannot be started, in one line.
        """
        index = self._node.hosts.index(host)
        payload = {
            "job": asdict(replace(self._job, submitter=None)),
            "node": asdict(replace(self._node, index=index)),
            "gpus": self._gpus.get(host, ()),
        }
        program = self._job.python or shlex.quote(sys.executable)
        script = f"{start_script(os.environ, program, host)}{json.dumps(payload)}\n"
        self._connections[host] = _Connection(host, script, lambda line: self._say(f"{host}: {line}"))
        if len(self._connections) == len(self._node.hosts) - 1:
            self._wait_until_started()

    def close(self, *, wait_s: float) -> None:
        """Wait for the nodes to leave, which they do by themselves once the outcome is known; then end what is left."""
        end = time.monotonic() + wait_s
        for connection in self._connections.values():
            connection.close(wait_s=max(0.0, end - time.monotonic()))

    def _wait_until_started(self) -> None:
        end = time.monotonic() + _START_S
        waiting = dict(self._connections)
        while waiting:
            for host, connection in list(waiting.items()):
                if self._handover.has(f"{self._node.hosts.index(host)}.agent"):
                    del waiting[host]
                elif connection.has_ended() or time.monotonic() > end:
                    raise LaunchError(unreachable(host, self._node.hosts[0], connection.last_words()))
            time.sleep(POLL_S)


class _Connection:
    """One ssh, deaf to notices, whose input stays open."""

    def __init__(self, host: str, script: str, on_line: Callable[[str], None]) -> None:
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        # The host's name is Slurm's; "--" keeps one that begins with a dash from being an option.
        command = f"{DEAF}; exec {shlex.join([*SSH, '--', host, 'exec bash -s'])}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(on_line,), name=f"ssh {host}", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, and its words say why
            self._process.stdin.write(os.fsencode(script))
            self._process.stdin.flush()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> list[str]:
        if self.has_ended():
            self._reader.join(1.0)  # what it said last may still be in the pipe
        return list(self._lines)

    def close(self, *, wait_s: float) -> None:
        assert self._process.stdin is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            if line := raw.decode(errors="replace").strip():
                self._lines.append(line)
                on_line(line)
