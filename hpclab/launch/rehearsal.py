"""`hpclab submit --dry-run`: the whole job on this machine, scaled down, and a table of what was seen to work.

The job is interrupted by a preemption's notice, requeues itself and resumes; then the same job runs once more without
an interruption, and both must have learned the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpclab.config.algorithms import PPOSection
from hpclab.config.schema import RunConfig
from hpclab.errors import HpclabError
from hpclab.launch import runs
from hpclab.launch.check_list import Check
from hpclab.launch.devices import visible_gpus
from hpclab.launch.plan import SubmissionPlan, plan_of, with_options
from hpclab.launch.pseudo_nodes import run_here
from hpclab.launch.rehearsal_checks import examine
from hpclab.launch.rehearsed_preemption import ENDLESS, RehearsedPreemption, with_iterations
from hpclab.run_folder import RunFolder

_ENVS_PER_RANK = 8
_STEPS = 8
_LAUNCH = {"command": "submit", "local": True}


def rehearse(plan: SubmissionPlan) -> int:
    """Run a plan's job scaled down in a temporary folder, print what was checked, and return the exit code.

    Returns:
        0 when every check passed; the folder is then removed. 1 otherwise; it is kept and named.
    """
    folder = Path(tempfile.mkdtemp(prefix="hpclab-rehearsal-"))
    small, notes = scaled_down(plan, folder)
    nodes = "1 pseudo-node" if small.num_nodes == 1 else f"{small.num_nodes} pseudo-nodes"
    workers = "1 worker" if small.workers_per_node == 1 else f"{small.workers_per_node} workers"
    print(f"rehearsing {plan.config.task}: {nodes} with {workers} each")
    for note in notes:
        print(note)
    print(f"folder: {folder}", flush=True)
    start = time.monotonic()
    straight = RunFolder(folder / "uninterrupted")
    script = RehearsedPreemption(small.run, runs.named(small.config, small.run))
    problem = ""
    try:
        print("training, preempted after two iterations, requeued and resumed", flush=True)
        with script:
            problem = _run(small)
        if not problem and script.total is not None:
            print("the same once more, without an interruption", flush=True)
            problem = _run(replace(small, run=straight, config=with_iterations(small.config, script.total)))
    except HpclabError as error:
        problem = str(error)
    checks = list(examine(small, straight, noticed=script.noticed, total=script.total))
    _show(checks, time.monotonic() - start)
    if problem:
        print(problem)
    if problem or not all(check.passed for check in checks):
        print(f"the runs are kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _run(plan: SubmissionPlan) -> str:
    """Run a job to its end; return what went wrong, or nothing."""
    with runs.opened(plan.run, plan.config, _LAUNCH) as opened:
        attempt = run_here(replace(plan, config=opened.config), quiet=True)
    return "" if attempt.cause == "completed" else f"{plan.run.name}: {attempt.cause} {attempt.note}".rstrip()


def scaled_down(plan: SubmissionPlan, root: Path) -> tuple[SubmissionPlan, list[str]]:
    """Return the plan of a rehearsal: few environments, iterations and workers; and what differs on this machine."""
    cores = len(os.sched_getaffinity(0))
    gpus = visible_gpus() if plan.use_gpus else ()
    nodes = min(plan.num_nodes, max(2, cores, len(gpus)))
    use_gpus = len(gpus) >= nodes
    workers = min(plan.workers_per_node, max(1, (len(gpus) if use_gpus else cores) // nodes))
    notes = []
    if plan.use_gpus and not use_gpus:
        notes.append(
            f"GPUs are asked for, but {len(gpus) or 'none'} for {nodes} nodes are here: CPU workers in their place"
        )
    if (nodes, workers) != (plan.num_nodes, plan.workers_per_node):
        asked = f"{plan.num_nodes} x {plan.workers_per_node}"
        notes.append(f"{asked} workers are asked for; this machine rehearses with {nodes} x {workers}")
    config = _small_config(plan.config, root, nodes * workers, use_gpus=use_gpus)
    options: dict[str, Any] = {"gpus_per_node": workers} if use_gpus else {"workers_per_node": workers}
    config = with_options(config, **({"num_nodes": nodes, "gpus_per_node": None, "workers_per_node": None} | options))
    return plan_of(RunFolder(root / "rehearsal"), config), notes


def _small_config(config: RunConfig, root: Path, world_size: int, *, use_gpus: bool) -> RunConfig:
    values = config.model_dump()
    envs = _ENVS_PER_RANK * (world_size if config.env.num_envs_scope == "global" else 1)
    values["env"] |= {"num_envs": envs} | ({} if use_gpus else {"backend": "auto", "threads": None})
    values["algorithm"] |= {"num_steps_per_env": _STEPS}
    if isinstance(config.algorithm, PPOSection):
        most = _ENVS_PER_RANK * (1 if config.recurrent else _STEPS)
        values["algorithm"] |= {"num_mini_batches": min(config.algorithm.num_mini_batches, most)}
    else:
        values["algorithm"] |= {"gradient_length": min(config.algorithm.gradient_length, _STEPS)}
    values["run"] |= {"root": str(root), "name": "rehearsal", "max_iterations": ENDLESS, "max_env_steps": None}
    values["run"] |= {"save_interval": 2, "keep_last": 3}
    values["metrics"] |= {"wandb_project": None}
    # Budgets are for the cluster: a run that may never be requeued there is rehearsed like any other.
    values["slurm"] |= {"time": 30, "requeue": {}}
    return RunConfig.model_validate(values)


def _show(checks: list[Check], seconds: float) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"rehearsal, {seconds:.0f} s", title_justify="left")
    for name in ("check", "result", "found"):
        table.add_column(name)
    for check in checks:
        table.add_row(check.what, "[green]ok[/]" if check.passed else "[bold red]FAILED[/]", escape(check.found))
    Console().print(table, highlight=False)
