"""Where a job's compiled GPU kernels are kept: on the node itself, so that no rank waits for the shared home folder."""

from __future__ import annotations

import getpass
import os
from collections.abc import MutableMapping
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch.private import private_folder

VARIABLE = "WARP_CACHE_PATH"
_SCRATCH = ("SLURM_TMPDIR", "TMPDIR")


def keep_on_node(variables: MutableMapping[str, str]) -> str | None:
    """Let warp keep its kernels on this node's scratch, inside a Slurm job whose user has not said where.

    Args:
        variables: of this rank; changed.

    Returns:
        Why it stays with warp's own folder, where the scratch cannot be used; None otherwise.
    """
    if VARIABLE in variables or "SLURM_JOB_ID" not in variables:
        return None
    scratch = next((variables[name] for name in _SCRATCH if variables.get(name)), "/tmp")
    try:
        # Others can write to /tmp too: what they made in our name is not loaded into our processes.
        folder = private_folder(Path(scratch) / f"hpclab-{_user()}")
    except (ConfigError, OSError) as error:
        return f"kernels are not kept in {scratch}: {error}"
    variables[VARIABLE] = str(folder / "warp")
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id in a container
        return str(os.geteuid())
