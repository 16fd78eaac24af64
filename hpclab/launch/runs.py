"""Create a run folder, or open it to go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.config.load import dump_config, load_config
from hpclab.config.schema import RunConfig
from hpclab.config.section import is_one_line
from hpclab.errors import ConfigError
from hpclab.launch import lock
from hpclab.launch.ends import close_lost
from hpclab.launch.manifest import write_manifest
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.run_folder import RunFolder, existing_part, takes_entries, write_atomic

_FIXED = (
    *("task", "actor", "critic", "algorithm.name"),
    *("algorithm.rnd.group", "algorithm.rnd.num_outputs", "algorithm.rnd.predictor_hidden_dims"),
    *("algorithm.rnd.target_hidden_dims", "algorithm.rnd.state_normalization", "algorithm.rnd.reward_normalization"),
)
"""Settings that begin so keep their value: a checkpoint of one cannot be loaded into another."""
_SAME_STATE = ({"adam", "adamw"},)
"""Optimisers that go on with each other's state."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that this process owns, ready for an attempt."""

    folder: RunFolder
    config: RunConfig
    notes: tuple[str, ...]
    """What to tell the user: that it goes on, and which settings changed."""


def run_folder(config: RunConfig, config_path: Path) -> RunFolder:
    """Return where a run lives: `run.root`, and `run.name` or the config file's stem.

    Raises:
        ConfigError: `run.root` names a home folder that does not exist.
    """
    try:
        root = Path(config.run.root).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"run.root={config.run.root}: there is no such home folder; write the path out") from error
    return RunFolder.at(root / (config.run.name or config_path.stem))


def named(config: RunConfig, run: RunFolder) -> RunConfig:
    """Return the config with the run's place written out, so that it holds wherever the file is read."""
    place = {"root": str(run.path.parent), "name": run.name}
    return config.model_copy(update={"run": config.run.model_copy(update=place)})


def check(run: RunFolder, config: RunConfig, owner: lock.Owner | None = None) -> tuple[str, ...]:
    """Check, without writing, that the run can be created or opened; return the notes for the user.

    Raises:
        ConfigError: a live owner, settings that an existing run cannot change, or a folder that cannot be written.
    """
    if not is_one_line(str(run.path)):
        raise ConfigError(
            f"{str(run.path)!r}: a run's path must be one line of text; choose another run.name or run.root"
        )
    _check_writable(run)
    if SweepFolder(run.path).record.exists():
        raise ConfigError(f"{run.path}: holds a sweep, so it cannot hold a run; choose another run.name")
    if not run.config.exists():
        return ()
    lock.refuse_if_owned(run, owner or lock.Owner.this_process())
    try:
        old = load_config(run.config)
    except ConfigError as error:
        raise ConfigError(
            f"{run.path}: holds a run whose config.yaml cannot be read; choose another run.name\n{error}"
        ) from error
    changes = dict(_changes(old.model_dump(), named(config, run).model_dump()))
    fixed = [key for key, (before, after) in changes.items() if _is_fixed(key, before, after)]
    if fixed and run.checkpoints.is_dir() and any(run.checkpoints.iterdir()):
        key = fixed[0]
        raise ConfigError(
            f"{run.path}: holds a run with {key}={changes[key][0]}, not {changes[key][1]}; choose another run.name"
        )
    shown = [f"setting changed for this run: {key}: {old} -> {new}" for key, (old, new) in changes.items()]
    return (f"{run.path} exists: going on with that run", *shown)


@contextmanager
def opened(
    run: RunFolder,
    config: RunConfig,
    launch: Mapping[str, Any],
    *,
    owner: lock.Owner | None = None,
    code_kept: bool = False,
    sweep: Mapping[str, Any] | None = None,
) -> Iterator[OpenRun]:
    """Create or open a run and own it for the duration of a block.

    Args:
        run: where it lives.
        config: the resolved settings; they become the run's config.yaml.
        launch: how it is started, for `hpclab resume`.
        owner: who owns it; this process when not given.
        code_kept: it runs from the snapshot of an earlier attempt.
        sweep: the sweep that it belongs to, for run.json.

    Raises:
        ConfigError: as `check`.
    """
    owner = owner or lock.Owner.this_process()
    notes = check(run, config, owner)
    try:
        run.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{run.path}: cannot be created: {error.strerror}; choose another run.root") from error
    with lock.held(run, owner):
        config = named(config, run)
        write_atomic(run.config, dump_config(config))
        write_manifest(run, launch, code_kept=code_kept, sweep=sweep)
        close_lost(run, own_job=owner.job_id)  # while the request to cancel tells of it
        run.cancel_request.unlink(missing_ok=True)
        yield OpenRun(run, config, notes)


def _check_writable(run: RunFolder) -> None:
    existing = existing_part(run.path)
    if not existing.is_dir():
        raise ConfigError(f"{existing}: is a file, but run.root and run.name make it a folder; choose another")
    if not takes_entries(existing):
        raise ConfigError(f"{existing}: not writable, so {run.path} cannot be used; choose another run.root")
    for part in (run.submitit, run.path / "logs", run.metrics, run.checkpoints):
        # Slurm ends a job whose log it cannot open as FAILED without a word.
        if part.exists() and not takes_entries(part):
            raise ConfigError(f"{part}: not a folder that can be written; remove it or choose another run.name")


def _is_fixed(key: str, before: Any, after: Any) -> bool:
    """Whether a checkpoint of the one value cannot be loaded into the other."""
    if key == "algorithm.optimizer":
        return {before, after} not in _SAME_STATE
    if key == "algorithm.rnd":  # what it has learned may be left behind
        return before is None
    return key.startswith(_FIXED)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key in new:
        before, after = old.get(key), new[key]
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}", (before, after)
