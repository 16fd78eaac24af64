"""`hpclab doctor`: run every family of checks and print what they find."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from hpclab.launch.doctor.agents import check_agents
from hpclab.launch.doctor.allocation import check_allocation
from hpclab.launch.doctor.cluster import check_cluster, is_here
from hpclab.launch.doctor.finding import Finding, error
from hpclab.launch.doctor.gpus import check_gpus
from hpclab.launch.doctor.lead_time import check_lead_time
from hpclab.launch.doctor.network_address import check_network
from hpclab.launch.doctor.partition import check_partition, choose
from hpclab.launch.doctor.request import Request, make_request
from hpclab.launch.doctor.slurm_words import read_config, read_nodes, read_partitions
from hpclab.launch.doctor.software import check_software
from hpclab.launch.doctor.storage import check_folder, check_kernel_cache

_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_RUNS = Path("runs")


def doctor(*, profile: str | None, num_nodes: int | None, workers_per_node: int | None, as_json: bool) -> None:
    """Check this machine, the cluster, and with `num_nodes` the nodes themselves.

    Args:
        profile: site whose request is checked; `default` when not given.
        num_nodes: run a short job on this many nodes; without it nothing is submitted.
        workers_per_node: CPU workers in place of the profile's GPUs.
        as_json: print one JSON object.

    Raises:
        ConfigError: no such profile, or it is wrong.
        SystemExit: 1 when there is an error among the findings.
    """
    request = make_request(profile=profile, num_nodes=num_nodes, workers_per_node=workers_per_node)
    found = []
    for finding in check_all(request):
        found.append(finding)
        if not as_json:
            _show(finding)
    for finding in _on_nodes(request, found) if num_nodes is not None else ():
        found.append(finding)
        if not as_json:
            _show(finding)
    counts = {level: sum(one.level == level for one in found) for level in ("ok", "warning", "error")}
    if as_json:
        print(json.dumps({"findings": [asdict(one) for one in found], "counts": counts}, indent=1))
    else:
        print(", ".join(f"{count} {level}{_plural(level, count)}" for level, count in counts.items()))
    if counts["error"]:
        raise SystemExit(1)


def check_all(request: Request) -> Iterator[Finding]:
    """Yield, as they come, the findings on all that can be seen from here."""
    yield from check_software()
    config = read_config() if is_here() else None
    partitions = read_partitions() if config is not None else {}
    partition = choose(partitions, request.slurm.partition) or {}
    yield from check_cluster(config, partition)
    if config is not None:
        nodes = read_nodes(partition["PartitionName"]) if partition else []
        yield from check_partition(request, partitions, nodes)
    yield from check_agents(request.slurm.agents)
    yield from check_folder(_RUNS.absolute())
    yield check_kernel_cache(submits=is_here())
    yield from check_network(_controller(config) if config is not None else None)
    yield from check_gpus()
    if config is not None:
        yield from check_lead_time(request.plan.signal_lead_s, partition, config, _RUNS)


def _on_nodes(request: Request, found: Sequence[Finding]) -> Iterable[Finding]:
    if is_here() and any(one.level == "error" for one in found):
        return [error("nodes' job", "not started: the errors above would stop it", "mend them first")]
    return check_allocation(request, _RUNS.absolute())


def _controller(config: dict[str, str]) -> str | None:
    """Return the host of `SlurmctldHost[0] = head(10.0.0.1)`."""
    text = next((value for key, value in config.items() if key.startswith("SlurmctldHost")), "")
    return re.split(r"[(,]", text)[0].strip() or None


def _show(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False)
    console.print(Text(f"{finding.level:8}", _STYLES[finding.level]) + Text(f"{finding.check:15} {finding.text}"))
    if finding.action:
        console.print(Text(f"{'':24}-> {finding.action}"))


def _plural(level: str, count: int) -> str:
    return "" if level == "ok" or count == 1 else "s"
