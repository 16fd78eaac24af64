"""This task's place in its job: one task is one node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.errors import LaunchError
from hpclab.run_folder import RunFolder

_LOOPBACKS = 254


@dataclass(frozen=True, slots=True)
class Node:
    """Where this task runs, and what its job is called."""

    job_id: str
    """`11`, or `11_1` for an array member: the form that scontrol requeues."""
    index: int
    """Which of `hosts` this is."""
    hosts: tuple[str, ...]
    restart: int
    """How often the job was requeued before."""
    pseudo: bool
    """The other nodes are on this machine too."""

    @classmethod
    def of_slurm(cls, environment: Mapping[str, str] = os.environ) -> Node:
        """Read a Slurm step's variables, with or without submitit around it.

        Raises:
            LaunchError: this process is no task of a step with one task per node.
        """
        from submitit.slurm.slurm import SlurmJobEnvironment

        for name in ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_JOB_NODELIST", "SLURM_NTASKS"):
            if name not in environment:
                raise LaunchError(f"{name} is not set; start one task per node with srun, as slurm/train.sbatch does")
        job = SlurmJobEnvironment()
        hosts = tuple(job.hostnames)
        if int(environment["SLURM_NTASKS"]) != len(hosts):
            raise LaunchError(
                f"job {job.job_id}: {environment['SLURM_NTASKS']} tasks on {len(hosts)} nodes; "
                "start exactly one per node (--ntasks-per-node=1)"
            )
        # The task numbering need not follow the node list; the node's own name does.
        own = environment.get("SLURMD_NODENAME", "")
        index = hosts.index(own) if own in hosts else int(job.node)
        restart = int(environment.get("SLURM_RESTART_COUNT") or 0)
        return cls(str(job.job_id), index, hosts, restart, pseudo=False)

    @classmethod
    def of_submitit(cls, run: RunFolder) -> Node:
        """Read the place of a submitit task, under Slurm or submitit's local executor."""
        import submitit

        job = submitit.JobEnvironment()
        if job.cluster != "local":
            return cls.of_slurm()
        hosts = ("localhost", *(f"127.0.0.{k}" for k in range(1, _LOOPBACKS)))[: job.num_tasks]
        restart = read_restarts(run, str(job.job_id))
        return cls(str(job.job_id), int(job.global_rank), hosts, restart, pseudo=True)

    @property
    def leads(self) -> bool:
        return self.index == 0


def own_job_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the surrounding job's id in the form of `Node.job_id`; None outside a job."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else environment.get("SLURM_JOB_ID")


def read_restarts(run: RunFolder, job_id: str) -> int:
    """Return how often a job of submitit's local executor was requeued: it counts that nowhere itself."""
    path = _restarts(run, job_id)
    return int(path.read_text()) if path.exists() else 0


def count_restart(run: RunFolder, job_id: str, restarts: int) -> None:
    _restarts(run, job_id).write_text(str(restarts))


def _restarts(run: RunFolder, job_id: str) -> Path:
    return run.submitit / "handover" / f"{job_id}.restarts"


def walltime_left_s(environment: Mapping[str, Any], now: float) -> float | None:
    """Return how long this job may still run [s]; None where Slurm does not say."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    return float(end) - now if end.isdigit() else None
