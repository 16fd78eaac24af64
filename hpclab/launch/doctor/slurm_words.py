"""What `scontrol` and `sinfo` say of a cluster, as dictionaries."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpclab.config.units import parse_walltime_min
from hpclab.launch.queue import slurm_command

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What one node has."""

    name: str
    cpus: int
    memory_mb: int
    gpus: int
    state: str


def read_config() -> dict[str, str] | None:
    """Return `scontrol show config`; None when the controller does not answer."""
    text = slurm_command("scontrol", "show", "config", timeout_s=_TIMEOUT_S)
    return None if text is None else dict(re.findall(r"^([\w/\[\]]+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))


def read_partitions() -> dict[str, dict[str, str]]:
    """Return every partition that one may see, by name."""
    text = slurm_command("scontrol", "show", "partition", "-o", timeout_s=_TIMEOUT_S) or ""
    found = [dict(re.findall(r"(?:^|\s)([\w/]+)=(\S*)", line)) for line in text.splitlines()]
    return {one["PartitionName"]: one for one in found if "PartitionName" in one}


def read_nodes(partition: str) -> list[NodeSize]:
    """Return the nodes of a partition."""
    text = slurm_command("sinfo", "-h", "-N", "-p", partition, "-o", "%N|%c|%m|%G|%T", timeout_s=_TIMEOUT_S) or ""
    rows = [line.strip().split("|") for line in text.splitlines()]
    return [
        NodeSize(name, int(cpus.rstrip("+")), int(memory.rstrip("+")), count_gpus(gres), state)
        for name, cpus, memory, gres, state in (row for row in rows if len(row) == 5)
    ]


def count_gpus(gres: str) -> int:
    """Return the GPUs of `gpu:4`, `gpu:a100:4(S:0-1)`, `gpu:a:2,gpu:b:2` or `gpu`; 0 when there are none."""
    total = 0
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        words = part.strip().removeprefix("gres/").split(":")
        if words[0] == "gpu":
            total += int(words[-1]) if len(words) > 1 and words[-1].isdecimal() else 1
    return total


def minutes(text: str) -> int | None:
    """Return a time limit of Slurm in minutes; None when there is no limit."""
    try:
        return parse_walltime_min(text)
    except ValueError:
        return None


def number(text: str) -> int | None:
    """Return a count with whatever unit follows it (`30 sec`); None when there is no limit."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
