"""`hpclab train`: on this machine, in this process or with one process per device."""

from __future__ import annotations

import os
from pathlib import Path

from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError
from hpclab.launch import runs
from hpclab.launch.checks import check_batches, check_files
from hpclab.launch.devices import resolve
from hpclab.launch.output import dispensable_output
from hpclab.run_folder import RunFolder, existing_part, takes_entries

EXIT_STOPPED = 130
"""Exit code of a run that saved and stopped before its end: by Ctrl-C, TERM, USR2 or `hpclab cancel`."""


def train(
    config_path: Path,
    overrides: list[str],
    *,
    gpu_ids: list[str] | None,
    num_workers: int | None,
    torchrunx_log_dir: str | None,
) -> None:
    """Train a config's run, from its last checkpoint when the run folder exists.

    Args:
        config_path: YAML file.
        overrides: `key.sub=value`.
        gpu_ids: see `devices.resolve`.
        num_workers: CPU workers.
        torchrunx_log_dir: torchrunx's log folder; "" for none, None for `{run}/logs/torchrunx`. The environment
            variable TORCHRUNX_LOG_DIR comes before it.

    Raises:
        ConfigError: the request cannot be carried out; nothing was written.
        WorkerError: a rank failed.
        SystemExit: with 130, the run was stopped before its end.
    """
    config = load_config(config_path, overrides)
    train_run(
        runs.run_folder(config, config_path),
        config,
        gpu_ids=gpu_ids,
        num_workers=num_workers,
        torchrunx_log_dir=torchrunx_log_dir,
    )


@dispensable_output()
def train_run(
    run: RunFolder,
    config: RunConfig,
    *,
    gpu_ids: list[str] | None,
    num_workers: int | None,
    torchrunx_log_dir: str | None,
) -> None:
    """Train a run at a given place; otherwise as `train`."""
    devices = resolve(gpu_ids, num_workers)
    check_batches(config, len(devices))
    check_files(config)
    logs = torchrunx_logs(run, torchrunx_log_dir)
    if len(devices) > 1 and logs and not Path(logs).is_relative_to(run.path):
        check_log_folder(Path(logs))
    how = {
        "command": "train",
        "gpu_ids": gpu_ids,
        "num_workers": num_workers,
        "torchrunx_log_dir": torchrunx_log_dir,
    }
    with runs.opened(run, config, how) as opened:
        for note in opened.notes:
            print(note)
        print(f"run folder: {run.path}", flush=True)
        # Both import torch, which costs seconds: not before the request is known to be good.
        if len(devices) == 1:
            from hpclab.launch.in_process import train_in_process

            outcome = train_in_process(run, devices[0])
        else:
            from hpclab.launch.local import train_locally

            outcome = train_locally(run, devices, torchrunx_logs=logs)
    if outcome.kind == "stopped":
        print(f"stopped before iteration {outcome.iteration}; go on with: hpclab resume {run.argument}", flush=True)
        raise SystemExit(EXIT_STOPPED)


def torchrunx_logs(run: RunFolder, option: str | None) -> str:
    """Return torchrunx's log folder: TORCHRUNX_LOG_DIR, else the option, else the run's; "" for none."""
    chosen = os.environ.get("TORCHRUNX_LOG_DIR", option)
    return str(run.path / "logs" / "torchrunx") if chosen is None else chosen


def check_log_folder(path: Path) -> None:
    """Check that a folder is there or can be made.

    Raises:
        ConfigError: it cannot: torchrunx would find out in a process of its own, and nobody would have its logs.
    """
    existing = existing_part(path.absolute())
    if not takes_entries(existing):
        raise ConfigError(f"{path}: cannot be torchrunx's log folder: {existing} is not a folder that can be written")
