"""How torchrunx's agents get to the nodes: through Slurm's own tasks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from hpclab.launch.doctor.cluster import is_here
from hpclab.launch.doctor.finding import Finding, error, not_here, ok, warning
from hpclab.launch.doctor.software import installed
from hpclab.launch.torchrunx_launcher import TESTED_VERSION


def check_agents() -> Iterator[Finding]:
    """Check what starts a job's workers."""
    version = installed("torchrunx")
    if version != TESTED_VERSION:
        yield error(
            "agents", f"torchrunx {version}, but {TESTED_VERSION} is needed", "pip install -c constraints.txt ."
        )
        return
    if not is_here():
        yield not_here("agents", "no Slurm here; agents start as children of hpclab")
        return
    for command, needed in {"sbatch": "to submit", "srun": "to start one task a node", "scancel": "to cancel"}.items():
        if shutil.which(command) is None:
            yield error("agents", f"no {command} here, {needed}", "work on a login node, or fix PATH")
            return
    if shutil.which("squeue") is None:
        yield warning("agents", "no squeue here", "status cannot tell a job that is gone from a silent controller")
        return
    yield ok("agents", f"torchrunx {version} inside srun's tasks; no ssh between nodes is needed")
