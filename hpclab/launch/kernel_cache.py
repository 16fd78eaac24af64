"""Where a job's compiled GPU kernels are kept: on the node itself, so that no rank waits for the shared home folder."""

from __future__ import annotations

import getpass
import hashlib
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch.private import private_folder
from hpclab.run_folder import RunFolder

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
    try:
        folder = _own_folder(variables)
    except (ConfigError, OSError) as error:
        return f"kernels are not kept on this node: {error}"
    variables[VARIABLE] = str(folder / "warp")
    return None


def turn_file(run: RunFolder, attempt: int, variables: Mapping[str, str]) -> str | None:
    """Return the file of `KernelTurn` of one attempt on this node; None for a rank that is alone on it.

    Its name has the job, the run, the attempt and the node: others of the same user on this machine have their own.
    """
    if int(variables["LOCAL_WORLD_SIZE"]) == 1:
        return None
    job = f"{variables.get('SLURM_JOB_ID', 'local')}.{variables.get('SLURM_RESTART_COUNT', '0')}"
    digest = hashlib.sha256(os.fsencode(run.path)).hexdigest()[:12]
    try:
        return str(_own_folder(variables) / f"kernels-{job}-{digest}-{attempt}-{variables['GROUP_RANK']}")
    except (ConfigError, OSError):
        return None  # nobody waits; every rank compiles


def _own_folder(variables: Mapping[str, str]) -> Path:
    scratch = next((variables[name] for name in _SCRATCH if variables.get(name)), "/tmp")
    # Others can write to /tmp too: what they made in our name is not loaded into our processes.
    return private_folder(Path(scratch) / f"hpclab-{_user()}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id in a container
        return str(os.geteuid())
