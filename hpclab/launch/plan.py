"""What a submission asks for: worked out from the config, its profile and the options, before anything starts."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpclab.config.load import load_config, load_profile
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError
from hpclab.launch import environment, runs
from hpclab.launch.checks import check_batches, check_files
from hpclab.launch.node_job import NodeJob
from hpclab.launch.train import torchrunx_logs
from hpclab.run_folder import RunFolder

_SOURCE_TREE = Path(__file__).parents[2]
_AGENTS = {
    "tasks": "one task of Slurm on each node",
    "ssh": "over ssh from the first node",
    "local": "on the one node, without srun",
}
_MIN_LEAD_SHARE = 3
"""A short walltime keeps two thirds for training: the notice comes at most one third of it before its end."""


@dataclass(frozen=True, slots=True)
class SubmissionPlan:
    """One job."""

    run: RunFolder
    config: RunConfig
    """Resolved, with the options written into `launch`: the run's config.yaml."""
    num_nodes: int
    workers_per_node: int
    use_gpus: bool
    setup: Path | None
    """Script that the job sources."""
    code: Path | None = None
    """Snapshot that the job imports from; this package as it is then when there is none."""

    @property
    def world_size(self) -> int:
        return self.num_nodes * self.workers_per_node

    @property
    def signal_lead_s(self) -> int:
        """How long before the walltime's end the notice comes [s]."""
        return min(self.config.slurm.signal_lead_s, 60 * self.config.slurm.time // _MIN_LEAD_SHARE)

    @property
    def cpus_per_node(self) -> int:
        return self.workers_per_node * self.config.slurm.cpus_per_worker

    @property
    def python(self) -> str:
        """Shell words that run this package's Python on a node."""
        prefix, python = self.config.slurm.command_prefix, shlex.quote(sys.executable)
        return python if prefix is None else f"{prefix} {python}"

    def job(self, **changes: Any) -> NodeJob:
        """Return the callable that runs on every node."""
        values: dict[str, Any] = {
            "run_folder": str(self.run.path),
            "num_nodes": self.num_nodes,
            "workers_per_node": self.workers_per_node,
            "use_gpus": self.use_gpus,
            "walltime_min": self.config.slurm.time,
            "signal_lead_s": self.signal_lead_s,
            "torchrunx_logs": torchrunx_logs(self.run, None),
            "agents": self.config.slurm.agents,
            "python": self.python,
        }
        return NodeJob(**(values | changes))

    def parameters(self) -> dict[str, Any]:
        """Return what submitit's Slurm executor is given."""
        slurm = self.config.slurm
        values: dict[str, Any] = {
            "job_name": job_name(self.run.name),
            "nodes": self.num_nodes,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus_per_node,
            "time": slurm.time,
            "signal_delay_s": self.signal_lead_s,
            "mem": None if slurm.memory is None else f"{slurm.memory}M",
            "gpus_per_node": self.workers_per_node if self.use_gpus and slurm.gres is None else None,
            "gres": slurm.gres if self.use_gpus else None,
            "stderr_to_stdout": True,
            "wckey": None,  # submitit's own would be refused where wckeys are enforced
            # One task's death ends the step: the others would wait for it. srun does not inherit --cpus-per-task, and
            # where jobs start with --export=NONE it would not pass on what the script exports.
            "srun_args": ["--kill-on-bad-exit=1", f"--cpus-per-task={self.cpus_per_node}", "--export=ALL"],
        }
        for key in ("partition", "account", "qos", "constraint", "exclude", "mail_user", "mail_type"):
            values[key] = getattr(slurm, key)
        before = [] if self.setup is None else [f"source {shlex.quote(str(self.setup))}"]
        before += [] if self.code is None else environment.imports_from(self.code)
        values["setup"] = before or None
        extra: dict[str, Any] = {"requeue": True}
        if slurm.agents != "tasks":
            # The first node's task is the batch step itself, which only hears of what B: sends it.
            del values["srun_args"]
            values["use_srun"] = False
            extra["signal"] = f"B:USR2@{self.signal_lead_s}"
        if slurm.reservation is not None:
            extra["reservation"] = slurm.reservation
        # sbatch options without a value: true writes them, false leaves them out, as it does for our own.
        extra |= slurm.extra
        values["additional_parameters"] = {key: value for key, value in extra.items() if value is not False}
        return {key: value for key, value in values.items() if value is not None or key == "wckey"}

    def __str__(self) -> str:
        """Return the plan as lines for a person."""
        slurm, workers = self.config.slurm, "GPU" if self.use_gpus else "CPU worker"
        env, algorithm = self.config.env, self.config.algorithm
        ranks = self.world_size if env.num_envs_scope == "per_rank" else 1
        samples = env.num_envs * ranks * algorithm.num_steps_per_env
        lines = {
            "run folder": str(self.run.path),
            "task": self.config.task,
            "nodes": f"{self.num_nodes} x {_count(self.workers_per_node, workers)} = {_count(self.world_size, 'rank')}",
            "per node": f"{self.cpus_per_node} CPU cores, {_memory(slurm.memory)}",
            "walltime": f"{_walltime(slurm.time)} an attempt, notice to save {self.signal_lead_s} s before its end",
            "partition": slurm.partition or "the cluster's default",
            "account": slurm.account or "yours",
            "environments": f"{env.num_envs * ranks} in all, {samples} samples an iteration",
            "iterations": str(self.config.run.max_iterations),
            "agents": _AGENTS[slurm.agents],
            "setup": "none" if self.setup is None else str(self.setup),
            "code": "as it is when the job starts" if self.code is None else f"frozen in {self.code}",
        }
        return "\n".join(f"{name + ':':14}{text}" for name, text in lines.items())


def job_name(name: str) -> str:
    """Return a run's name as Slurm takes it."""
    return re.sub(r"[^\w.+-]", "_", name)


def make_plan(
    config_path: Path,
    overrides: list[str],
    *,
    num_nodes: int | None = None,
    gpus_per_node: int | None = None,
    workers_per_node: int | None = None,
    profile: str | None = None,
) -> SubmissionPlan:
    """Work out a submission; nothing is written.

    Args:
        config_path: YAML file.
        overrides: `key.sub=value`.
        num_nodes: in place of `launch.num_nodes`.
        gpus_per_node: in place of `launch.gpus_per_node`.
        workers_per_node: CPU workers in place of GPUs.
        profile: site; `default` when not given.

    Raises:
        ConfigError: the request cannot be carried out.
    """
    for name, value in {
        "--nodes": num_nodes,
        "--gpus-per-node": gpus_per_node,
        "--workers-per-node": workers_per_node,
    }.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name} {value}: must be at least 1")
    if gpus_per_node is not None and workers_per_node is not None:
        raise ConfigError("--gpus-per-node and --workers-per-node (CPU workers) exclude each other; give one of them")
    config = load_config(config_path, overrides, profile=load_profile(profile or "default"))
    return plan_of(
        runs.run_folder(config, config_path),
        with_options(config, num_nodes=num_nodes, gpus_per_node=gpus_per_node, workers_per_node=workers_per_node),
    )


def with_options(
    config: RunConfig, *, num_nodes: int | None, gpus_per_node: int | None, workers_per_node: int | None
) -> RunConfig:
    """Return the config with the command line's numbers in it."""
    changes: dict[str, int | None] = {}
    if num_nodes is not None:
        changes["num_nodes"] = num_nodes
    if gpus_per_node is not None:
        changes |= {"gpus_per_node": gpus_per_node, "cpu_workers_per_node": None}
    if workers_per_node is not None:
        changes |= {"gpus_per_node": None, "cpu_workers_per_node": workers_per_node}
    return config.model_copy(update={"launch": config.launch.model_copy(update=changes)})


def plan_of(run: RunFolder, config: RunConfig) -> SubmissionPlan:
    """Work out the submission that a resolved config describes.

    Raises:
        ConfigError: too few environments for the ranks, too many nodes for the agents, or a setup script that does
            not exist.
    """
    launch = config.launch
    if config.slurm.agents == "local" and launch.num_nodes > 1:
        raise ConfigError(
            f"slurm.agents=local runs on one node, not {launch.num_nodes}; set slurm.agents to tasks, or to ssh where "
            "srun cannot be used"
        )
    use_gpus = launch.cpu_workers_per_node is None
    workers = launch.cpu_workers_per_node or launch.gpus_per_node or config.slurm.gpus_per_node or 1
    plan = SubmissionPlan(run, config, launch.num_nodes, workers, use_gpus, _setup(config))
    check_batches(config, plan.world_size)
    check_files(config)
    return plan


def from_snapshot(plan: SubmissionPlan, code: Path) -> SubmissionPlan:
    """Return a plan whose job runs from the snapshot that an earlier submission made.

    Raises:
        ConfigError: it is gone.
    """
    if not (code / "hpclab").is_dir():
        raise ConfigError(f"{code}: the run's snapshot of the code is gone; go on with a new one: --new-code")
    setup = plan.setup
    if setup is not None and setup.is_relative_to(_SOURCE_TREE):
        frozen = code / setup.relative_to(_SOURCE_TREE)
        setup = frozen if frozen.is_file() else setup
    return replace(plan, code=code, setup=setup)


def _setup(config: RunConfig) -> Path | None:
    """Return the setup script: the configured one, else slurm/setup.sh of the project here or around this package."""
    if config.slurm.setup is not None:
        path = Path(config.slurm.setup)
        if not path.is_file():
            raise ConfigError(f"slurm.setup={config.slurm.setup}: no such file")
        return path
    own = (folder / "slurm" / "setup.sh" for folder in (Path.cwd(), *Path.cwd().parents, _SOURCE_TREE))
    return next((path for path in own if path.is_file()), None)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _memory(megabytes: int | None) -> str:
    return "the partition's memory" if megabytes is None else f"{megabytes} MB"


def _walltime(minutes: int) -> str:
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00" if days else f"{rest // 60:02d}:{rest % 60:02d}:00"
