"""`hpclab submit --sweep`: the members of a sweep as one job array, or several where Slurm limits their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import environment, lock, runs
from hpclab.launch.job_code import how_submitted, with_snapshot
from hpclab.launch.plan import SubmissionPlan, make_plan
from hpclab.launch.slurm import (
    Array,
    RefusedError,
    check_job,
    check_slurm,
    max_array_size,
    nothing_left_if_refused,
    sbatch_script,
    submit_array,
)
from hpclab.launch.snapshot import Checkout, write_snapshot
from hpclab.launch.sweep import Member, SweepPlan, read_members
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.launch.uninterrupted import uninterrupted

_NUM_SHOWN = 10


def submit_sweep(
    config_path: Path,
    overrides: list[str],
    arguments: Sequence[str],
    *,
    snapshot: bool,
    print_only: bool,
    **options: Any,
) -> None:
    """Submit one run for each combination of values.

    Args:
        config_path: YAML file.
        overrides: `key.sub=value`, for all members.
        arguments: see `sweep.read_members`.
        snapshot: freeze the code that the jobs run, once for all.
        print_only: print the members, the plan and the sbatch script, and start nothing.
        options: of `plan.make_plan`.

    Raises:
        ConfigError: the request cannot be carried out; nothing was written.
        LaunchError: Slurm refused a job.
    """
    sweep, checkout = make_sweep(config_path, overrides, arguments, snapshot=snapshot, **options)
    if print_only:
        array = _array(sweep, min(len(sweep.plans), max_array_size()))
        print(f"{sweep.table()}\n\n{sweep.plans[0]}\n\n{sbatch_script(sweep.plans[0], array)}")
    else:
        sweep.folder.check([member.values for member in sweep.members])
        submit_members(sweep, checkout)


def make_sweep(
    config_path: Path, overrides: list[str], arguments: Sequence[str], *, snapshot: bool, **options: Any
) -> tuple[SweepPlan, Checkout | None]:
    """Work out a sweep, and what to copy into its snapshot; nothing is written. Arguments as of `submit_sweep`."""
    members = read_members(arguments)
    made = [make_plan(config_path, [*overrides, *member.overrides], **options) for member in members]
    folder = SweepFolder(made[0].run.path)
    first, checkout = with_snapshot(made[0], folder.path) if snapshot else (made[0], None)
    plans = tuple(
        replace(plan, run=folder.run(member.index), code=first.code, setup=first.setup)
        for member, plan in zip(members, made, strict=True)
    )
    return SweepPlan(folder, members, plans, len(members)), checkout


def submit_members(sweep: SweepPlan, checkout: Checkout | None) -> None:
    """Create or open the members' runs, submit them, and say what to do next.

    Args:
        sweep: its folder is free, or holds this sweep.
        checkout: what to copy into the members' snapshot; None when it stays as it is.

    Raises:
        ConfigError: a member cannot be opened.
        LaunchError: Slurm refused a job.
    """
    check_slurm()
    for plan in sweep.plans:
        runs.check(plan.run, plan.config)
    variables, dropped = environment.for_submission()
    if dropped:
        print(f"left out of the jobs' environment: {', '.join(dropped)}")
    size = max_array_size()
    with environment.replaced(variables), nothing_left_if_refused(sweep.folder.path), ExitStack() as owned:
        starts = [check_job(some[0], _array(sweep, len(some))) for some in _batches(sweep.plans, size)]
        plans = [
            replace(plan, config=owned.enter_context(_opened(sweep, member, plan)).config)
            for member, plan in zip(sweep.members, sweep.plans, strict=True)
        ]
        if checkout is not None:
            write_snapshot(checkout, sweep.folder.shared.code)
        jobs = _submit_arrays(sweep, plans, size)
    shown = [f"{plan.run.name}  {jobs[plan.run.name]}" for plan in plans]
    print("\n".join(shown[:_NUM_SHOWN]))
    if len(shown) > _NUM_SHOWN:
        print(f"... {len(shown)} runs in all")
    if starts[0]:
        print(f"start:      expected {starts[0]}")
    print(f"sweep:      {sweep.folder.path}")
    for command in ("status", "cancel"):
        print(f"  hpclab {command} {sweep.folder.shared.argument}")


def _opened(sweep: SweepPlan, member: Member, plan: SubmissionPlan) -> AbstractContextManager[runs.OpenRun]:
    entry = sweep.manifest_entry(member)
    return runs.opened(plan.run, plan.config, how_submitted(plan, local=False), sweep=entry)


def _submit_arrays(sweep: SweepPlan, plans: Sequence[SubmissionPlan], size: int) -> dict[str, str]:
    """Submit the members, hand each run over to its job, and return the jobs by run."""
    jobs: dict[str, str] = {}
    _record(sweep, jobs)  # before Slurm has any of them: `cancel` finds them here
    try:
        for some in _batches(plans, size):
            with uninterrupted():
                new = submit_array(some, _array(sweep, len(some)))
                for plan, job_id in zip(some, new, strict=True):
                    lock.hand_over(plan.run, lock.Owner.job(job_id))
                    jobs[plan.run.name] = job_id
                print(f"job array:  {new[0].partition('_')[0]}", flush=True)
                _record(sweep, jobs)
    except RefusedError as error:
        if not jobs:
            raise
        argument = sweep.folder.shared.argument
        raise LaunchError(
            f"{error}; {len(jobs)} of {len(plans)} runs had been submitted before and go on. End them with "
            f"`hpclab cancel {argument}`, or submit the others later with `hpclab resume {argument}`"
        ) from error
    return jobs


def _record(sweep: SweepPlan, jobs: Mapping[str, str]) -> None:
    names = {member.index: sweep.folder.run(member.index).name for member in sweep.members}
    sweep.folder.write(
        {member.index: member.values for member in sweep.members},
        {index: jobs[name] for index, name in names.items() if name in jobs},
    )


def _batches(plans: Sequence[SubmissionPlan], size: int) -> list[list[SubmissionPlan]]:
    """Split members into arrays: of those that ask for the same, at most `size` together."""
    alike: dict[str, list[SubmissionPlan]] = {}
    for plan in plans:
        request = plan.parameters() | {"job_name": None, "prefix": plan.config.slurm.command_prefix}
        alike.setdefault(repr(request), []).append(plan)
    return [some[start : start + size] for some in alike.values() for start in range(0, len(some), size)]


def _array(sweep: SweepPlan, size: int) -> Array:
    return Array(sweep.folder.path.name, size, sweep.folder.shared.submitit)


def refuse_here(*, local: bool, dry_run: bool) -> None:
    """Check that a sweep goes to Slurm.

    Raises:
        ConfigError: it does not.
    """
    if local or dry_run:
        raise ConfigError("--sweep is a job array of Slurm; --local and --dry-run run one job: leave --sweep out")
