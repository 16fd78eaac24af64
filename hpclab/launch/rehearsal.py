"""`hpclab submit --dry-run`: the whole job on this machine, scaled down, and a table of what was seen to work."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from hpclab.checkpoint.folder import newest_complete
from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import HpclabError
from hpclab.launch import jobs, runs
from hpclab.launch.devices import visible_gpus
from hpclab.launch.handover import Handover
from hpclab.launch.lock import process_is_alive
from hpclab.launch.plan import SubmissionPlan, plan_of, with_options
from hpclab.launch.pseudo_nodes import run_here
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder

_ITERATIONS = 3
_ENVS_PER_RANK = 8
_STEPS = 8


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    what: str
    passed: bool
    found: str


def rehearse(plan: SubmissionPlan) -> int:
    """Run a plan's job scaled down in a temporary run folder, print what was checked, and return the exit code.

    Returns:
        0 when every check passed; the folder is then removed. 1 otherwise; it is kept and named.
    """
    folder = Path(tempfile.mkdtemp(prefix="hpclab-rehearsal-"))
    small, notes = scaled_down(plan, folder)
    print(
        f"rehearsing {plan.config.task}: {small.num_nodes} pseudo-nodes with {small.workers_per_node} workers each, "
        f"{_ITERATIONS} iterations"
    )
    for note in notes:
        print(note)
    print(f"run folder: {small.run.path}", flush=True)
    start = time.monotonic()
    problem = ""
    try:
        with runs.opened(small.run, small.config, {"command": "submit", "local": True}) as opened:
            attempt = run_here(replace(small, config=opened.config), quiet=True)
        problem = attempt.note if attempt.cause != "completed" else ""
    except HpclabError as error:
        problem = str(error)
    checks = list(examine(small))
    _show(checks, time.monotonic() - start)
    if problem:
        print(problem)
    if problem or not all(check.passed for check in checks):
        print(f"the run folder is kept: {small.run.path}")
        return 1
    shutil.rmtree(folder)
    return 0


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
    batches = min(config.algorithm.num_mini_batches, _ENVS_PER_RANK * _STEPS)
    values["env"] |= {"num_envs": envs} | ({} if use_gpus else {"backend": "auto", "threads": None})
    values["algorithm"] |= {"num_steps_per_env": _STEPS, "num_mini_batches": batches}
    values["run"] |= {"root": str(root), "name": "rehearsal", "max_iterations": _ITERATIONS, "max_env_steps": None}
    values["run"] |= {"save_interval": 2, "keep_last": None}
    values["metrics"] |= {"wandb_project": None}
    values["slurm"] |= {"time": 30}
    return RunConfig.model_validate(values)


def examine(plan: SubmissionPlan) -> Iterator[Check]:
    """Look at what a finished job has left behind."""
    run = plan.run
    handover = _last_handover(run)
    agents = handover.processes() if handover is not None else []
    checks: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
        ("configuration is valid", lambda: (load_config(run.config).task == plan.config.task, plan.config.task)),
        ("run folder is written", lambda: _written(run)),
        (f"{plan.num_nodes} agents started", lambda: (len(agents) == plan.num_nodes, f"{len(agents)} started")),
        (f"{plan.world_size} ranks trained", lambda: _ranks(run, plan.world_size)),
        (f"{_ITERATIONS} iterations done", lambda: _iterations(run)),
        ("metrics are written", lambda: _metrics(run)),
        ("checkpoint is complete and loads", lambda: _checkpoint(run)),
        ("no process is left", lambda: _processes_gone(run, agents)),
    ]
    for what, look in checks:
        try:
            passed, found = look()
        except Exception as error:  # whatever goes wrong in a look is what the table has to say
            passed, found = False, f"{type(error).__name__}: {error}"
        yield Check(what, passed, found)


def _written(run: RunFolder) -> tuple[bool, str]:
    missing = [path.name for path in (run.config, run.manifest, run.jobs) if not path.is_file()]
    return not missing, f"missing: {', '.join(missing)}" if missing else str(run.path)


def _last_handover(run: RunFolder) -> Handover | None:
    folders = [path for path in (run.submitit / "handover").glob("*") if path.is_dir()]
    return Handover(max(folders, key=lambda path: path.stat().st_mtime)) if folders else None


def _ranks(run: RunFolder, world_size: int) -> tuple[bool, str]:
    last = len(jobs.read(run)) - 1
    with_log = [rank for rank in range(world_size) if run.rank_log(last, rank).stat().st_size > 0]
    return len(with_log) == world_size, f"{len(with_log)} rank logs"


def _iterations(run: RunFolder) -> tuple[bool, str]:
    attempt = jobs.read(run)[-1]
    done = 0 if attempt.last_iteration is None else attempt.last_iteration + 1
    return attempt.cause == "completed" and done == _ITERATIONS, f"{done} done, {attempt.cause}"


def _metrics(run: RunFolder) -> tuple[bool, str]:
    curve = read_curve(run.metrics / "metrics.jsonl")
    whole = [line["iteration"] for line in curve] == list(range(_ITERATIONS))
    return whole, f"{len(curve)} lines, {len(curve[-1])} values each" if curve else "none"


def _checkpoint(run: RunFolder) -> tuple[bool, str]:
    import torch

    for path, manifest in newest_complete(run.checkpoints):
        if isinstance(manifest, HpclabError):
            return False, str(manifest)
        for name in manifest.files:
            torch.load(path / name, map_location="cpu", weights_only=True)
        return manifest.iteration == _ITERATIONS, f"{path.name}, {len(manifest.files)} files"
    return False, "none"


def _processes_gone(run: RunFolder, agents: list[dict[str, Any]]) -> tuple[bool, str]:
    alive = {agent["pid"] for agent in agents if process_is_alive(agent["pid"], agent["started"])}
    for process in psutil.process_iter():
        try:
            if process.environ().get("HPCLAB_RUN") == str(run.path):
                alive.add(process.pid)
        except psutil.Error:
            continue  # ended meanwhile, or somebody else's
    return not alive, f"left: {', '.join(map(str, sorted(alive)))}" if alive else "all have ended"


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
