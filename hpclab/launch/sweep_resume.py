"""`hpclab resume SWEEP`: the members of a sweep that are neither complete nor alive, together again."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError
from hpclab.launch import jobs, lock, runs
from hpclab.launch.job_code import plan_again, with_snapshot
from hpclab.launch.manifest import read_manifest
from hpclab.launch.sweep import Member, SweepPlan
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.launch.sweep_submit import submit_members
from hpclab.metrics.jsonl import read_last
from hpclab.run_folder import RunFolder

_QUESTIONS_AT_ONCE = 8
_NUM_SHOWN = 10


@dataclass(frozen=True, slots=True)
class _Found:
    """One member as it stands."""

    member: Member
    run: RunFolder
    config: RunConfig
    """With the changes in it."""
    how: dict[str, Any]
    """How it was submitted."""
    state: str
    owner: lock.Owner | None
    """Alive; None when nothing runs it."""

    @property
    def is_complete(self) -> bool:
        last = read_last(self.run.metrics / "metrics.jsonl")
        return (
            self.state == "completed" and last is not None and last["iteration"] + 1 >= self.config.run.max_iterations
        )


def resume_sweep(folder: SweepFolder, overrides: list[str], *, num_nodes: int | None, new_code: bool) -> None:
    """Submit what is left of a sweep, and say what that is.

    Args:
        folder: holds a sweep.
        overrides: `key.sub=value`, for all members that go on.
        num_nodes: in place of what each had.
        new_code: take one new snapshot of the code for all; else each keeps what it was submitted with.

    Raises:
        ConfigError: nothing is left, a setting cannot change, or members that are alive use the code to be replaced.
        LaunchError: Slurm refused a job.
    """
    values = folder.values()
    with ThreadPoolExecutor(_QUESTIONS_AT_ONCE) as pool:  # nearly all of the time is Slurm's
        found = list(pool.map(lambda index: _look(folder, index, values[index], overrides), range(len(values))))
    alive = [one for one in found if one.owner is not None]
    complete = [one for one in found if one.owner is None and one.is_complete]
    left = [one for one in found if one not in alive and one not in complete]
    if not left:
        raise _nothing_left(folder, alive, complete)
    if new_code and alive:
        raise ConfigError(
            f"{folder.path}: {_names(alive)} may still load the code that --new-code replaces; leave it out, or end "
            "them first with hpclab cancel"
        )
    plans = [plan_again(one.run, one.config, one.how, num_nodes=num_nodes, new_code=new_code) for one in left]
    checkout = None
    if new_code:
        first, checkout = with_snapshot(plans[0], folder.path)
        if checkout is not None and first.code is not None:
            frozen = [plan.setup and checkout.frozen_path(plan.setup, first.code) for plan in plans]
            plans = [replace(plan, code=first.code, setup=setup) for plan, setup in zip(plans, frozen, strict=True)]
    print(f"going on with {len(left)} of {len(found)} runs: {_names(left)}")
    for what, others in (("complete", complete), ("running or waiting", alive)):
        if others:
            print(f"{what}: {_names(others)}")
    submit_members(SweepPlan(folder, tuple(one.member for one in left), tuple(plans), len(found)), checkout)


def _look(folder: SweepFolder, index: int, values: dict[str, Any], overrides: list[str]) -> _Found:
    run = folder.run(index)
    how = read_manifest(run).get("launch", {})
    if (how.get("command"), how.get("local")) != ("submit", False):
        raise ConfigError(f"{run.path}: was started another way than its sweep; resume it by itself")
    config = runs.named(load_config(run.config, overrides), run)
    attempts = jobs.read(run)
    without_end = "cancelled" if run.cancel_request.exists() else "interrupted"
    state = (attempts[-1].cause or without_end) if attempts else "never started"
    owner = lock.read_owner(run)
    alive = owner if owner is not None and owner.is_alive() else None
    return _Found(Member(index, (), values), run, config, how, state, alive)


def _nothing_left(folder: SweepFolder, alive: Sequence[_Found], complete: Sequence[_Found]) -> ConfigError:
    if not alive:
        return ConfigError(
            f"{folder.path}: all {len(complete)} runs are complete; for more: "
            f"hpclab resume {folder.shared.argument} run.max_iterations=N"
        )
    done = f"{len(complete)} complete, " if complete else ""
    return ConfigError(
        f"{folder.path}: nothing to resume: {done}{len(alive)} running or waiting: {_names(alive)}; see "
        f"hpclab status {folder.shared.argument}"
    )


def _names(found: Sequence[_Found]) -> str:
    shown = [f"{one.run.name} ({one.owner or one.state})" for one in found[:_NUM_SHOWN]]
    return ", ".join([*shown, "..."] if len(found) > _NUM_SHOWN else shown)
