"""What a job would ask of the cluster: a profile's settings and a number of nodes, without any config file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpclab.config.load import load_profile
from hpclab.config.schema import LaunchSection, RunConfig, SlurmSection
from hpclab.launch.plan import SubmissionPlan, plan_of
from hpclab.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Request:
    """A job to check the site for."""

    plan: SubmissionPlan
    profile: str
    """Name or path, as given."""

    @property
    def slurm(self) -> SlurmSection:
        return self.plan.config.slurm

    @property
    def gpus_per_node(self) -> int:
        return self.plan.workers_per_node if self.plan.use_gpus else 0


def make_request(*, profile: str | None, num_nodes: int | None, workers_per_node: int | None) -> Request:
    """Work out what a job with this profile asks for.

    Args:
        profile: site; `default` when not given.
        num_nodes: nodes; 1 when not given.
        workers_per_node: CPU workers of a node, in place of the profile's GPUs.

    Raises:
        ConfigError: no such profile, or it is wrong.
    """
    name = profile or "default"
    config = RunConfig(
        task="cartpole-balance",  # no task is made: any name does
        launch=LaunchSection(num_nodes=num_nodes or 1, cpu_workers_per_node=workers_per_node),
        slurm=SlurmSection(**load_profile(name)),
    )
    return Request(plan_of(RunFolder(Path("runs").absolute() / "doctor"), config), name)
