"""Which environment variables go where: to workers, to a submission, and which never."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpclab.worker.threads import limit_spinning

CARRIED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_*",
    "XDG_CACHE_HOME",
    "LD_LIBRARY*",
    "LIBRARY_PATH",
    "PYTHON*",
    "CUDA*",
    "TORCH*",
    "PYTORCH*",
    "TRITON*",
    "NCCL*",
    "GLOO*",
    "OMP*",
    "GOMP*",
    "MKL*",
    "MUJOCO*",
    "WARP*",
    "WANDB*",
    "HPCLAB*",
)
"""What torchrunx sets on every node as it is on the first one."""

# Right on one node and wrong on the next: each node keeps its own.
_OF_ONE_NODE = frozenset({"CUDA_VISIBLE_DEVICES", "HPCLAB_TMPDIR"})

_RANK_VARIABLES = frozenset(
    {"RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)

# SLURM_CONF says where the cluster is, and SLURM_CLUSTERS which one; neither describes the surrounding job.
_KEPT_SLURM = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})


def carried(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that every node's workers get."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_ONE_NODE and any(fnmatch.fnmatchcase(name, pattern) for pattern in CARRIED)
    }


def local(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment without what a surrounding job or launcher left in it, for workers on this machine."""
    return {name: value for name, value in environment.items() if not _describes_another_launch(name)}


def frozen(environment: Mapping[str, str], code: Path | None) -> dict[str, str]:
    """Return the environment of Python processes that import from a snapshot first, wherever they start."""
    if code is None:
        return dict(environment)
    before = environment.get("PYTHONPATH", "")
    path = f"{code}:{before}" if before else str(code)
    # Without the last, `python -m` puts the working folder first, which is usually the checkout.
    return {**environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def imports_from(code: Path) -> list[str]:
    """Return shell lines that do what `frozen` does, after a setup script may have set PYTHONPATH."""
    return [f'export PYTHONPATH={shlex.quote(str(code))}"${{PYTHONPATH:+:$PYTHONPATH}}"', "export PYTHONSAFEPATH=1"]


def share_cores(variables: dict[str, str], num_workers: int) -> None:
    """Add the thread settings of each of `num_workers` workers on this machine, where the user gave none."""
    cores = len(os.sched_getaffinity(0))
    variables.setdefault("OMP_NUM_THREADS", str(max(1, cores // num_workers)))
    limit_spinning(variables)


def for_submission(environment: Mapping[str, str] = os.environ) -> tuple[dict[str, str], list[str]]:
    """Return the environment to submit from, and the names that had to go.

    SBATCH_* overrides lines of the script. SLURM_* of a surrounding allocation (SLURM_CPU_BIND, SLURM_CPUS_PER_TASK,
    SLURM_MEM_PER_CPU, ...) would reach the new job's srun.
    """
    dropped = sorted(n for n in environment if _describes_another_launch(n) or n.startswith(("SBATCH_", "SRUN_")))
    return {name: value for name, value in environment.items() if name not in set(dropped)}, dropped


def _describes_another_launch(name: str) -> bool:
    if name.startswith(("SLURM_", "SUBMITIT_", "PMI_", "PMIX_", "OMPI_")):
        return name not in _KEPT_SLURM
    return name in _RANK_VARIABLES


@contextlib.contextmanager
def replaced(environment: Mapping[str, str]) -> Iterator[None]:
    """Make `environment` this process's own for the duration of a block."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
