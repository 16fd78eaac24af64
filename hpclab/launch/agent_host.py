"""Run one node's torchrunx agent as a child of the node's task."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable

from hpclab.launch import detached, environment
from hpclab.launch.handover import POLL_S, Handover
from hpclab.launch.kernel_cache import keep_on_node
from hpclab.launch.network import LOOPBACK, interface_of, reachable_address
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.launch.node_scratch import temporary_folder

_COMMAND_WAIT_S = 900.0
_GRACE_S = 5.0


class AgentHost:
    """Starts this node's agent when its command arrives, and sees to its end."""

    def __init__(
        self, job: NodeJob, node: Node, handover: Handover, *, unwanted: Callable[[], bool] = lambda: False
    ) -> None:
        """Prepare.

        Args:
            job: what runs.
            node: this one.
            handover: where the agent's command comes from.
            unwanted: whether the one that wanted the agent is gone.
        """
        self._job = job
        self._node = node
        self._handover = handover
        self._unwanted = unwanted

    def run(self) -> bool:
        """Run the agent to its end, from a thread that does nothing else meanwhile. Return whether there was one.

        The agent leaves by itself when the ranks are done. Once the launcher is over it gets a short grace; then all
        that is left of its process group is killed.
        """
        name = str(self._node.index)
        if self._handover.wait_for(f"{name}.command", "outcome", timeout_s=_COMMAND_WAIT_S) != f"{name}.command":
            return False
        command = self._handover.get(f"{name}.command") or ""
        variables = self._environment()
        with temporary_folder(variables):
            self._follow(detached.start(command, variables), name)
        return True

    def _follow(self, process: subprocess.Popen[bytes], name: str) -> None:
        try:
            self._handover.put_process(f"{name}.agent", process.pid)
            over_since: float | None = None
            while process.poll() is None:
                if over_since is None and (
                    self._unwanted() or self._handover.has(f"{name}.kill") or self._handover.has("outcome")
                ):
                    over_since = time.monotonic()
                if over_since is not None and time.monotonic() - over_since > _GRACE_S:
                    break
                time.sleep(POLL_S)
            if over_since is None and process.returncode is not None:
                end = json.dumps({"code": process.returncode, "time": time.time()})
                self._handover.put(f"{name}.gone", end)
                if process.returncode < 0:  # its ranks die with it and can say nothing; others only see them gone
                    self._handover.put(f"{name}.ended", end)
        finally:
            detached.end(process, grace_s=0.0)

    def _environment(self) -> dict[str, str]:
        variables = environment.local() if self._node.pseudo else dict(os.environ)
        environment.share_cores(variables, self._job.workers_per_node)
        if problem := keep_on_node(variables):
            print(problem, flush=True)
        interface = interface_of(node_address(self._node))
        if interface is not None:
            # By itself gloo uses what the host's own name resolves to, often 127.0.1.1.
            variables.setdefault("GLOO_SOCKET_IFNAME", interface)
        return variables


def node_address(node: Node) -> str:
    """Return the address by which the job's other nodes reach this one."""
    if node.pseudo:
        return LOOPBACK
    own = node.hosts[node.index]
    return reachable_address(own, [host for host in node.hosts if host != own])
