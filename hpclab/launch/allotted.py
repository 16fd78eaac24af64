"""Which GPUs of its nodes Slurm gave a job."""

from __future__ import annotations

import re

from hpclab.launch import queue

_ON_NODES = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_GPUS = re.compile(r"\bgpu(?::[^,:(]+)*:\d+\(IDX:([\d,-]+)\)")


def allotted_gpus(job_id: str) -> dict[str, tuple[str, ...]]:
    """Return the numbers of a job's GPUs by node; without those of which Slurm does not say."""
    return parse_allotted(queue.slurm_command("scontrol", "show", "job", "-d", "-o", job_id) or "")


def parse_allotted(text: str) -> dict[str, tuple[str, ...]]:
    """Read `scontrol show job -d -o`: `Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:2(IDX:0,2)`."""
    from submitit.slurm.slurm import _parse_node_list

    found: dict[str, tuple[str, ...]] = {}
    for nodes, gres in _ON_NODES.findall(text):
        # One kind of GPU after another: gpu:a:1(IDX:0),gpu:b:1(IDX:3)
        numbers = [number for listed in _GPUS.findall(gres) for number in _expand(listed)]
        if numbers:
            found |= dict.fromkeys(_parse_node_list(nodes), tuple(numbers))
    return found


def _expand(listed: str) -> list[str]:
    numbers: list[str] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        numbers += map(str, range(int(first), int(last or first) + 1))
    return numbers
