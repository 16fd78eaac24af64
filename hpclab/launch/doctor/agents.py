"""How torchrunx's agents get to the nodes: through Slurm's own tasks, over ssh, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from hpclab.config.schema import Agents
from hpclab.launch.doctor.cluster import is_here
from hpclab.launch.doctor.finding import Finding, error, not_here, ok, warning
from hpclab.launch.torchrunx_launcher import TESTED_VERSION
from hpclab.versions import installed

_NEEDED = {"sbatch": "to submit", "srun": "to start one task a node", "scancel": "to cancel"}
_WITHOUT_SRUN = {
    "ssh": "over ssh from the first node, without srun; --nodes N tries it between the nodes",
    "local": "on the one node of a job, without srun or ssh",
}


def check_agents(agents: Agents) -> Iterator[Finding]:
    """Check what starts a job's workers, by `slurm.agents`."""
    version = installed("torchrunx")
    if version != TESTED_VERSION:
        yield error(
            "agents", f"torchrunx {version}, but {TESTED_VERSION} is needed", "pip install -c constraints.txt ."
        )
        return
    if not is_here():
        yield not_here("agents", "no Slurm here; agents start as children of hpclab")
        return
    for command, needed in _NEEDED.items():
        if shutil.which(command) is None and (command != "srun" or agents == "tasks"):
            yield error("agents", f"no {command} here, {needed}", "work on a login node, or fix PATH")
            return
    if shutil.which("squeue") is None:
        yield warning("agents", "no squeue here", "status cannot tell a job that is gone from a silent controller")
        return
    if agents == "ssh" and shutil.which("ssh") is None:
        yield error("agents", "slurm.agents=ssh, but no ssh here", "install its client, or set slurm.agents=tasks")
        return
    how = _WITHOUT_SRUN.get(agents, "inside srun's tasks; no ssh between nodes is needed")
    yield ok("agents", f"torchrunx {version} {how}")
