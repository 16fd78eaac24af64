"""`hpclab resume`: go on with a run, where and how it ran before."""

from __future__ import annotations

from pathlib import Path

from hpclab.config.load import load_config
from hpclab.errors import ConfigError
from hpclab.launch import runs
from hpclab.launch.manifest import read_manifest
from hpclab.launch.plan import plan_of
from hpclab.launch.submit import run_locally, submit_to_slurm
from hpclab.launch.train import train_run
from hpclab.run_folder import RunFolder


def resume(run: Path, overrides: list[str]) -> None:
    """Go on with a run from its last checkpoint: train it here again, or submit it again with its recorded plan.

    Args:
        run: run folder.
        overrides: `key.sub=value`, settings to change from here on.

    Raises:
        ConfigError: no run there, a live one, or a setting that cannot change.
        LaunchError: Slurm refused the job.
        WorkerError: a rank failed.
        SystemExit: the run was stopped before its end (130).
    """
    folder = RunFolder(run.absolute())
    how = read_manifest(folder).get("launch", {})
    config = runs.named(load_config(folder.config, overrides), folder)
    match how:
        case {"command": "train", "gpu_ids": gpu_ids, "num_workers": num_workers, "torchrunx_log_dir": log_dir}:
            train_run(folder, config, gpu_ids=gpu_ids, num_workers=num_workers, torchrunx_log_dir=log_dir)
        case {"command": "submit", "local": True}:
            run_locally(plan_of(folder, config))
        case {"command": "submit", "local": False}:
            submit_to_slurm(plan_of(folder, config))
        case _:
            raise ConfigError(f"{folder.manifest}: does not say how the run was started; use hpclab train or submit")
