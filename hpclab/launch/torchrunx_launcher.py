"""torchrunx's launcher with two parts replaced: how a node's agent is started, and by which address it is found.

torchrunx 0.4.0 starts agents by ssh or as a child in the same session, and names itself by the host's full name, which
on Debian-like hosts is 127.0.1.1. It has no option for either, so this module replaces two names in
`torchrunx.launcher` for the duration of a launch, and refuses any other version.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.errors import LaunchError
from hpclab.launch.detached import die_with_parent

TESTED_VERSION = "0.4.0"

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
) -> Any:
    """Run `function(*arguments)` once per rank and return what rank 0 returns.

    Args:
        function: importable on every node.
        nodes: hosts, workers and the launcher's address.
        handler: starts and ends agents.
        environment: variables that all workers get.
        launcher_log: receives what agents print, and workers until they open their own log.
        torchrunx_logs: torchrunx's own log folder; "" for none.

    Raises:
        LaunchError: torchrunx has another version.
        Exception: what torchrunx raises when an agent or a worker fails.
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
    launcher.set_logging_handlers(_LogHandlers(nodes.hosts, nodes.workers_per_host, str(launcher_log), torchrunx_logs))
    with _replaced(handler, nodes.address):
        return launcher.run(function, *arguments).rank(0)


@contextlib.contextmanager
def _replaced(handler: Handler, address: str) -> Iterator[None]:
    import torchrunx
    import torchrunx.launcher as module

    if torchrunx.__version__ != TESTED_VERSION:
        raise LaunchError(
            f"torchrunx {torchrunx.__version__} is installed, but only {TESTED_VERSION} can be used; "
            f"pip install torchrunx=={TESTED_VERSION}"
        )

    def execute_command(command: str, hostname: str, **_: object) -> tuple[str, str]:
        handler(hostname, command)
        return "", ""

    before = module.execute_command, module.socket
    module.execute_command = execute_command
    module.socket = types.SimpleNamespace(getfqdn=lambda: address)
    try:
        yield
    finally:
        module.execute_command, module.socket = before


@dataclass(frozen=True, slots=True)
class _LogHandlers:
    """Makes the handlers inside torchrunx's log process."""

    hosts: Sequence[str]
    workers_per_host: int
    launcher_log: str
    torchrunx_logs: str

    def __call__(self) -> list[logging.Handler]:
        from torchrunx.utils.log_handling import file_handlers

        die_with_parent(signal.SIGKILL)  # torchrunx ends this process only when the launcher leaves in good order
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        everything = logging.FileHandler(self.launcher_log)
        everything.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        everything.setLevel(logging.INFO)
        handlers: list[logging.Handler] = [everything]
        if self.torchrunx_logs:
            workers = [self.workers_per_host] * len(self.hosts)
            handlers += file_handlers(list(self.hosts), workers, log_dir=self.torchrunx_logs, log_level=logging.INFO)
        return handlers
