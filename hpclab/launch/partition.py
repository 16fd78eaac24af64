"""Whether a partition that cannot take a job now may take it later."""

from __future__ import annotations

from hpclab.launch.queue import slurm_command

_OUT = ("drain", "down", "maint", "fail", "boot", "reboot", "unk", "no_resp", "power", "inval", "resv", "reserved")


def may_take_later(partition: str | None, num_nodes: int) -> bool:
    """Say whether enough nodes belong to a partition, some of them out of service now.

    Args:
        partition: one, or several separated by commas; the cluster's default when None.
        num_nodes: how many the job needs.

    Returns:
        Also True when Slurm does not tell.
    """
    listed = slurm_command("sinfo", "-h", "-N", "-o", "%P %N %T")
    if listed is None:
        return True
    wanted = None if partition is None else set(partition.split(","))
    states: dict[str, str] = {}
    for line in listed.splitlines():
        if len(words := line.split()) != 3:  # what a site's wrapper prints before
            continue
        name, node, state = words
        if name.endswith("*") if wanted is None else name.rstrip("*") in wanted:
            states[node] = state
    return len(states) >= num_nodes and any(state.startswith(_OUT) for state in states.values())
