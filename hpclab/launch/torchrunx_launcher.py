"""torchrunx's launcher with four parts replaced: how agents start, its address, its ports, and the wait for agents.

torchrunx 0.4.0 starts agents by ssh or as a child in the same session; names itself by the host's full name, which on
Debian-like hosts is 127.0.1.1; chooses ports that somebody else can take before it listens; and waits five minutes for
an agent that is dead. It has no option for any of these, so this module replaces four names in `torchrunx.launcher` for
the duration of a launch, and refuses any other version.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import socketserver
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpclab.errors import LaunchError
from hpclab.launch.detached import die_with_parent

TESTED_VERSION = "0.4.0"
_GROUP = "LauncherAgentGroup"
_MEETING_S = 900.0
"""For all agents to import torch, which takes minutes from a shared folder that hundreds of nodes read."""

_Result = TypeVar("_Result")

Handler = Callable[[str, str], None]
"""Called with a host and a shell command to start there; `kill PID` asks to end the host's agent."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Where the agents run."""

    hosts: tuple[str, ...]
    """Distinct names; the agents are found by what `handler` does with them, not by address."""
    workers_per_host: int
    address: str
    """Where every agent reaches the launcher."""


def launch(
    function: Callable[..., Any],
    *arguments: object,
    nodes: Nodes,
    handler: Handler,
    environment: Mapping[str, str],
    launcher_log: Path,
    torchrunx_logs: str,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """Run `function(*arguments)` once per rank and return what rank 0 returns.

    Args:
        function: importable on every node.
        nodes: hosts, workers and the launcher's address.
        handler: starts and ends agents.
        environment: variables that all workers get.
        launcher_log: receives what agents print, and workers until they open their own log.
        torchrunx_logs: torchrunx's own log folder; "" for none.
        check: called every moment until all agents have come, to raise when one never will.

    Raises:
        LaunchError: torchrunx has another version.
        Exception: what `handler` or `check` raises, and what torchrunx raises when an agent or a worker fails.
    """
    import torchrunx

    # An agent must not take TERM as its own end: notices are for the launcher, which stops all ranks together.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGINT"
    launcher = torchrunx.Launcher(
        hostnames=list(nodes.hosts),
        workers_per_host=nodes.workers_per_host,
        backend=None,
        copy_env_vars=(),
        extra_env_vars={**environment, "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGINT"},
    )
    with _replaced(handler, nodes.address, check) as listener:
        launcher.set_logging_handlers(
            _LogHandlers(nodes.hosts, nodes.workers_per_host, str(launcher_log), torchrunx_logs, listener.fileno())
        )
        return launcher.run(function, *arguments).rank(0)


@contextlib.contextmanager
def _replaced(handler: Handler, address: str, check: Callable[[], None]) -> Iterator[socket.socket]:
    """Replace the names, and yield the listener for the log process, which inherits it."""
    import torchrunx
    import torchrunx.launcher as module

    if torchrunx.__version__ != TESTED_VERSION:
        raise LaunchError(
            f"torchrunx {torchrunx.__version__} is installed, but only {TESTED_VERSION} can be used; "
            f"pip install torchrunx=={TESTED_VERSION}"
        )
    from hpclab.distributed.rendezvous import listen

    def execute_command(command: str, hostname: str, **_: object) -> tuple[str, str]:
        handler(hostname, command)
        return "", ""

    before = {name: getattr(module, name) for name in ("execute_command", "socket", "get_open_port", _GROUP)}
    with listen(address) as listener, listen(address) as log_listener:
        # In the order in which it asks for them: both are ours from here on.
        ports = iter([listener.getsockname()[1], log_listener.getsockname()[1]])
        module.execute_command = execute_command
        module.socket = types.SimpleNamespace(getfqdn=lambda: address)
        module.get_open_port = lambda: next(ports)
        setattr(module, _GROUP, _group_at(listener, check))
        try:
            yield log_listener
        finally:
            for name, value in before.items():
                setattr(module, name, value)


def _group_at(listener: socket.socket, check: Callable[[], None]) -> type:
    """Return torchrunx's group of launcher and agents, with a listener of ours and a wait that looks after agents."""
    from torchrunx.utils.comm import LauncherAgentGroup

    from hpclab.distributed.rendezvous import join, serve

    class Group(LauncherAgentGroup[_Result]):
        def __post_init__(self) -> None:
            store = serve(
                listener, self.launcher_hostname, world_size=self.world_size, timeout_s=_MEETING_S, check=check
            )
            join(store, rank=self.rank, world_size=self.world_size, timeout_s=self.agent_timeout)
            self.group = None  # the default one

    return Group


@dataclass(frozen=True, slots=True)
class _LogHandlers:
    """Makes the handlers inside torchrunx's log process."""

    hosts: Sequence[str]
    workers_per_host: int
    launcher_log: str
    torchrunx_logs: str
    listener: int
    """File descriptor of the socket at which the log server listens."""

    def __call__(self) -> list[logging.Handler]:
        from torchrunx.utils.log_handling import file_handlers

        die_with_parent(signal.SIGKILL)  # torchrunx ends this process only when the launcher leaves in good order
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _serve_at(self.listener)
        everything = logging.FileHandler(self.launcher_log)
        everything.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        everything.setLevel(logging.INFO)
        handlers: list[logging.Handler] = [everything]
        if self.torchrunx_logs:
            workers = [self.workers_per_host] * len(self.hosts)
            handlers += file_handlers(list(self.hosts), workers, log_dir=self.torchrunx_logs, log_level=logging.INFO)
        return handlers


def _serve_at(listener: int) -> None:
    """Let torchrunx's log server, which this process makes next, use a socket that listens already."""
    from torchrunx.utils.log_streaming import _LogRecordSocketReceiver

    def take_over(server: socketserver.TCPServer) -> None:
        server.socket.close()
        server.socket = socket.socket(fileno=listener)
        server.server_address = server.socket.getsockname()

    _LogRecordSocketReceiver.server_bind = take_over
    _LogRecordSocketReceiver.server_activate = lambda _: None
