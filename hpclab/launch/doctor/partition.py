"""The partition's limits against what a job asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpclab.launch.doctor.finding import Finding, error, ok, warning
from hpclab.launch.doctor.request import Request
from hpclab.launch.doctor.slurm_words import NodeSize, count_gpus, minutes, number

_UNUSABLE = ("down", "drain", "fail", "maint", "unk", "inval", "powering_down", "reserved")


def choose(partitions: Mapping[str, Mapping[str, str]], name: str | None) -> Mapping[str, str] | None:
    """Return the partition that a job gets: the named one, else the cluster's default."""
    if name is not None:
        return partitions.get(name.split(",")[0])
    return next((one for one in partitions.values() if one.get("Default") == "YES"), None)


def check_partition(
    request: Request, partitions: Mapping[str, Mapping[str, str]], nodes: Sequence[NodeSize]
) -> Iterator[Finding]:
    """Check that a job may and can start.

    Args:
        request: the job.
        partitions: all partitions, by name.
        nodes: those of the partition that it gets.
    """
    slurm, wanted = request.slurm, request.plan.num_nodes
    partition = choose(partitions, slurm.partition)
    if partition is None:
        names = ", ".join(partitions) or "none that you may see"
        what = f"no partition {slurm.partition}" if slurm.partition else "the cluster has no default partition"
        yield error("partition", what, f"set slurm.partition to one of: {names}")
        return
    name = partition["PartitionName"]
    if partition.get("State", "UP") != "UP":
        yield error("partition", f"{name} is {partition['State']}", "wait until it is up, or use another partition")
    else:
        yield ok("partition", name)
    yield _time(partition, slurm.time)
    yield _nodes(partition, nodes, wanted)
    yield _sizes(request, nodes)
    for key, asked in {"AllowAccounts": slurm.account, "AllowQos": slurm.qos}.items():
        allowed = partition.get(key, "ALL")
        if asked is not None and allowed != "ALL" and asked not in allowed.split(","):
            setting = "slurm.account" if key == "AllowAccounts" else "slurm.qos"
            yield error("access", f"{name} does not take {setting}={asked}", f"use one of {allowed}")


def _time(partition: Mapping[str, str], asked: int) -> Finding:
    limit = minutes(partition.get("MaxTime", "UNLIMITED"))
    if limit is not None and asked > limit:
        return error(
            "walltime",
            f"slurm.time={asked} min, but {partition['PartitionName']} allows {limit}",
            f"set slurm.time={limit}: a run goes on over as many attempts as it needs",
        )
    return ok("walltime", f"{asked} min of {'unlimited' if limit is None else limit}")


def _nodes(partition: Mapping[str, str], nodes: Sequence[NodeSize], asked: int) -> Finding:
    name = partition["PartitionName"]
    limit = number(partition.get("MaxNodes", "UNLIMITED"))
    least = number(partition.get("MinNodes", "0")) or 0
    total = len(nodes) or number(partition.get("TotalNodes", "")) or 0
    usable = sum(not one.state.lower().startswith(_UNUSABLE) for one in nodes)
    if limit is not None and asked > limit:
        return error("nodes", f"{asked} asked for, but {name} allows {limit}", f"use --nodes {limit} or less")
    if asked < least:
        return error("nodes", f"{asked} asked for, but {name} wants at least {least}", f"use --nodes {least}")
    if asked > total:
        return error("nodes", f"{asked} asked for, but {name} has {total}", f"use --nodes {total} or less")
    if nodes and asked > usable:
        return warning(
            "nodes", f"{asked} asked for, but only {usable} of {total} are up now", "the job waits until more are up"
        )
    return ok("nodes", f"{asked} of {total}" + (f", {usable} up" if nodes else ""))


def _sizes(request: Request, nodes: Sequence[NodeSize]) -> Finding:
    cpus, memory = request.plan.cpus_per_node, request.slurm.memory or 0
    gpus = request.gpus_per_node
    if gpus and request.slurm.gres is not None:
        gpus = max(gpus, count_gpus(request.slurm.gres))
    asked = f"{cpus} cores, " + (f"{memory} MB, " if memory else "") + f"{gpus} GPUs a node"
    if not nodes:
        return warning("node size", f"{asked}; sinfo says nothing of the nodes", "see sinfo -N -l")
    wanted = request.plan.num_nodes
    for what, enough, action in (
        ("GPUs", [one.gpus >= gpus for one in nodes], "--gpus-per-node, or use --workers-per-node for CPU workers"),
        ("cores", [one.cpus >= cpus for one in nodes], "slurm.cpus_per_worker"),
        ("memory", [one.memory_mb >= memory for one in nodes], "slurm.memory"),
    ):
        if sum(enough) < wanted:
            most = max({"GPUs": one.gpus, "cores": one.cpus, "memory": one.memory_mb}[what] for one in nodes)
            unit = " MB" if what == "memory" else ""
            text = f"{asked}: {sum(enough)} of the nodes have that much of {what}, {wanted} are needed"
            return error("node size", text, f"the largest node has {most}{unit}; lower {action}")
    both = sum(one.gpus >= gpus and one.cpus >= cpus and one.memory_mb >= memory for one in nodes)
    if both < wanted:
        return error("node size", f"{asked}: only {both} nodes have all of it", "lower one of them; see sinfo -N -l")
    return ok("node size", f"{asked}; {both} nodes have it")
