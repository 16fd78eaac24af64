"""`hpclab resume`: go on with a run, where and how it ran before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError
from hpclab.launch import runs
from hpclab.launch.manifest import read_manifest
from hpclab.launch.plan import SubmissionPlan, from_snapshot, plan_of, with_options
from hpclab.launch.submit import run_locally, submit_to_slurm, with_snapshot
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.launch.train import train_run
from hpclab.run_folder import RunFolder


def resume(run: Path, overrides: list[str], *, num_nodes: int | None = None, new_code: bool = False) -> None:
    """Go on with a run from its last checkpoint: train it here again, or submit it again with its recorded plan.

    Args:
        run: run folder, or a sweep's: then its members that are neither complete nor alive.
        overrides: `key.sub=value`, settings to change from here on.
        num_nodes: of a submitted run, in place of what it had.
        new_code: of a submitted run: take a new snapshot of the code; else the one it was submitted with stays.

    Raises:
        ConfigError: no run there, a live one, or a setting that cannot change.
        LaunchError: Slurm refused the job.
        WorkerError: a rank failed.
        SystemExit: the run was stopped before its end (130).
    """
    folder, sweep = RunFolder(run.absolute()), SweepFolder(run.absolute())
    if sweep.record.exists():
        from hpclab.launch.sweep_resume import resume_sweep

        resume_sweep(sweep, overrides, num_nodes=num_nodes, new_code=new_code)
        return
    how = read_manifest(folder).get("launch", {})
    config = runs.named(load_config(folder.config, overrides), folder)
    match how:
        case {"command": "train"} if num_nodes is not None or new_code:
            raise ConfigError(f"{folder.path}: was started by hpclab train, which has no --nodes and no --new-code")
        case {"command": "train", "gpu_ids": gpu_ids, "num_workers": num_workers, "torchrunx_log_dir": log_dir}:
            train_run(folder, config, gpu_ids=gpu_ids, num_workers=num_workers, torchrunx_log_dir=log_dir)
        case {"command": "submit", "local": bool(local)}:
            plan, checkout = plan_again(folder, config, how, num_nodes=num_nodes, new_code=new_code), None
            if new_code:
                plan, checkout = with_snapshot(plan)
            (run_locally if local else submit_to_slurm)(plan, checkout)
        case _:
            raise ConfigError(f"{folder.manifest}: does not say how the run was started; use hpclab train or submit")


def plan_again(
    run: RunFolder, config: RunConfig, how: Mapping[str, Any], *, num_nodes: int | None, new_code: bool
) -> SubmissionPlan:
    """Return the plan of a run's next job.

    Args:
        run: its folder.
        config: with the changes in it.
        how: what its run.json says of how it was submitted.
        num_nodes: in place of what it had.
        new_code: leave out the snapshot that it was submitted with; the caller takes another.

    Raises:
        ConfigError: it cannot go on so.
    """
    plan = plan_of(run, with_options(config, num_nodes=num_nodes, gpus_per_node=None, workers_per_node=None))
    if new_code or how.get("code") is None:
        return plan
    return from_snapshot(plan, Path(os.path.normpath(run.path / how["code"])))
