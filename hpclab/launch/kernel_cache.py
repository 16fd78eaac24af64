"""Where a job's compiled GPU kernels are kept: on the node itself, so that no rank waits for the shared home folder."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch.node_scratch import OWN_TMPDIR, own_folder

VARIABLE = "WARP_CACHE_PATH"


def keep_on_node(variables: MutableMapping[str, str]) -> str | None:
    """Let warp keep its kernels on this node's scratch, inside a Slurm job whose user has not said where.

    Args:
        variables: of the node's agent, whose ranks get them too; changed.

    Returns:
        Why it stays with warp's own folder, where the scratch cannot be used; None otherwise.
    """
    if VARIABLE in variables or "SLURM_JOB_ID" not in variables:
        return None
    try:
        folder = own_folder(variables)
    except (ConfigError, OSError) as error:
        return f"kernels are not kept on this node: {error}"
    variables[VARIABLE] = str(folder / "warp")
    return None


def turn_file(variables: Mapping[str, str]) -> str | None:
    """Return the file of `KernelTurn` on this node; None where nobody waits and every rank compiles.

    So it is for a rank that is alone on its node, and where its agent has no temporary folder of its own.
    """
    if int(variables["LOCAL_WORLD_SIZE"]) == 1 or OWN_TMPDIR not in variables:
        return None
    return str(Path(variables[OWN_TMPDIR]) / "kernels")
