"""What `hpclab doctor --nodes N` runs once on every node, under srun: it writes what it finds into a shared folder.

python -m hpclab.launch.doctor.node_check FOLDER AGENTS
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.errors import LaunchError
from hpclab.launch.doctor import gpus, storage
from hpclab.launch.kernel_cache import keep_on_node
from hpclab.launch.network import interface_of, reachable_address
from hpclab.launch.node import Node
from hpclab.launch.ssh import check_ssh
from hpclab.run_folder import write_atomic
from hpclab.versions import versions

_WAIT_S = 60.0
_POLL_S = 0.1
_PINGS = 5
_COLLECTIVE_TIMEOUT_S = 120.0
_LEADER = "leader.json"


@dataclass(frozen=True, slots=True)
class _Context:
    rank: int
    world_size: int
    master_addr: str
    master_port: int


def check_node(folder: Path, node: Node, *, agents: str) -> None:
    """Write `node-<index>.json`: facts, clock and network towards the first node, and the bandwidth among all.

    Args:
        folder: shared by the nodes.
        node: this one.
        agents: `slurm.agents`; for `ssh` the first node tries to reach the others.
    """
    report = facts(node)
    if node.leads and agents == "ssh":
        report["ssh"] = _unreachable(node)
    step = "clock and port"
    try:
        context, report["clock"] = _meet(folder, node, report["address"])
        step = "all-reduce"
        report["all_reduce"] = _all_reduce(context, report)
    except Exception as error:  # whatever it is, the node's other facts must reach the report
        report["failed"] = {"step": step, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    write_atomic(folder / f"node-{node.index:04d}.json", json.dumps(report))


def facts(node: Node) -> dict[str, Any]:
    """Return what this node is."""
    own = node.hosts[node.index]
    found, problem = gpus.query()
    keep_on_node(os.environ)  # as every node's agent does
    cache = storage.check_kernel_cache()
    address = reachable_address(own, [host for host in node.hosts if host != own])
    interface = interface_of(address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return {
        "host": own,
        "versions": versions(),
        "gpus": found,
        "gpu_problem": problem,
        "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "address": address,
        "interface": interface,
        "kernel_cache": {"level": cache.level, "text": cache.text, "action": cache.action},
    }


def _unreachable(node: Node) -> list[str]:
    others = [host for host in node.hosts if host != node.hosts[node.index]]
    with ThreadPoolExecutor(max_workers=16) as pool:
        problems = pool.map(lambda host: check_ssh(host, node.hosts[node.index]), others)
        return [problem for problem in problems if problem is not None]


def _meet(folder: Path, node: Node, address: str) -> tuple[_Context, dict[str, float] | None]:
    """Find the first node, and compare clocks with it over a connection like those that training needs."""
    world_size = len(node.hosts)
    path = folder / _LEADER
    if node.leads:
        server = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        threading.Thread(target=_answer, args=(server,), name="clock", daemon=True).start()
        port = _free_port(address)
        write_atomic(path, json.dumps({"address": address, "clock": server.getsockname()[1], "rendezvous": port}))
        return _Context(0, world_size, address, port), None
    end = time.monotonic() + _WAIT_S
    while _LEADER not in os.listdir(folder):  # noqa: PTH208 - lists anew: NFS caches that a name is absent
        if time.monotonic() > end:
            raise LaunchError(f"{path} of {node.hosts[0]} does not show up here: the folder is not shared")
        time.sleep(_POLL_S)
    leader = json.loads(path.read_text())
    clock = _compare_clocks(leader["address"], leader["clock"])
    return _Context(node.index, world_size, leader["address"], leader["rendezvous"]), clock


def _answer(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            while connection.recv(1):
                connection.sendall(f"{time.time():.6f}\n".encode())


def _compare_clocks(address: str, port: int) -> dict[str, float]:
    best = {"round_trip_s": float("inf"), "offset_s": 0.0}
    with socket.create_connection((address, port), timeout=20.0) as connection, connection.makefile("rb") as answers:
        for _ in range(_PINGS):
            sent = time.time()
            connection.sendall(b"?")
            theirs = float(answers.readline())
            received = time.time()
            if received - sent < best["round_trip_s"]:
                best = {"round_trip_s": received - sent, "offset_s": (sent + received) / 2 - theirs}
    return best


def _free_port(address: str) -> int:
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        return int(probe.getsockname()[1])


def _all_reduce(context: _Context, report: dict[str, Any]) -> dict[str, Any] | None:
    import torch

    from hpclab.distributed.bandwidth import measure_all_reduce
    from hpclab.distributed.collectives import process_group

    on_gpu = bool(report["gpus"]) and report["visible_gpus"] != "" and torch.cuda.is_available()
    version: Any = torch.cuda.nccl.version() if on_gpu else None  # type: ignore[no-untyped-call]
    report["versions"]["nccl"] = ".".join(map(str, version)) if version else None
    if context.world_size == 1:
        return None
    device = torch.device("cuda:0" if on_gpu else "cpu")
    with process_group(context, device=device, timeout_s=_COLLECTIVE_TIMEOUT_S) as collectives:
        speed = measure_all_reduce(collectives, device)
    return {"bytes_per_s": speed, "backend": "nccl" if on_gpu else "gloo"}


if __name__ == "__main__":
    check_node(Path(sys.argv[1]), Node.of_slurm(), agents=sys.argv[2])
