"""`hpclab resume`: go on with a run, where and how it ran before."""

from __future__ import annotations

from pathlib import Path

from hpclab.config.load import load_config
from hpclab.errors import ConfigError
from hpclab.launch import runs
from hpclab.launch.job_code import plan_again, with_snapshot
from hpclab.launch.manifest import read_manifest
from hpclab.launch.submit import run_locally, submit_to_slurm
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.launch.sweep_resume import resume_sweep
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
    folder = RunFolder.at(run)
    sweep = SweepFolder(folder.path)
    if sweep.record.exists():
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
