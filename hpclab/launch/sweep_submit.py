"""`hpclab submit --sweep`: the members of a sweep as one job array, or several where Slurm limits their size."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import environment, lock, runs
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
from hpclab.launch.submit import how_submitted, with_snapshot
from hpclab.launch.sweep import SweepPlan, read_members
from hpclab.launch.sweep_folder import SweepFolder

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
        _submit(sweep, checkout)


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
    return SweepPlan(folder, members, plans), checkout


def _submit(sweep: SweepPlan, checkout: Checkout | None) -> None:
    check_slurm()
    sweep.folder.check([member.values for member in sweep.members])
    for plan in sweep.plans:
        runs.check(plan.run, plan.config)
    variables, dropped = environment.for_submission()
    if dropped:
        print(f"left out of the jobs' environment: {', '.join(dropped)}")
    size = max_array_size()
    with environment.replaced(variables), nothing_left_if_refused(sweep.folder.path), ExitStack() as owned:
        expected_start = check_job(sweep.plans[0], _array(sweep, min(len(sweep.plans), size)))
        opened = [
            owned.enter_context(
                runs.opened(plan.run, plan.config, how_submitted(plan, local=False), sweep=sweep.manifest_entry(member))
            ).config
            for member, plan in zip(sweep.members, sweep.plans, strict=True)
        ]
        if checkout is not None:
            write_snapshot(checkout, sweep.folder.code)
        job_ids = _submit_arrays(sweep, opened, size)
    shown = [f"{plan.run.name}  {job}" for plan, job in zip(sweep.plans, job_ids, strict=True)]
    print("\n".join(shown[:_NUM_SHOWN]))
    if len(shown) > _NUM_SHOWN:
        print(f"... {len(shown)} runs in all")
    arrays = ", ".join(dict.fromkeys(job.partition("_")[0] for job in job_ids))
    print(f"job array:  {arrays}")
    if expected_start:
        print(f"start:      expected {expected_start}")
    print(f"sweep:      {sweep.folder.path}")
    for command in ("status", "cancel"):
        print(f"  hpclab {command} {shlex.quote(str(sweep.folder.path))}")


def _submit_arrays(sweep: SweepPlan, configs: Sequence[RunConfig], size: int) -> list[str]:
    """Submit the members and hand each run over to its job."""
    job_ids: list[str] = []
    plans = [replace(plan, config=config) for plan, config in zip(sweep.plans, configs, strict=True)]
    try:
        for some in _batches(plans, size):
            new = submit_array(some, _array(sweep, len(some)))
            for plan, job_id in zip(some, new, strict=True):
                lock.hand_over(plan.run, lock.Owner.job(job_id))
            job_ids += new
    except RefusedError as error:
        if not job_ids:
            raise
        raise LaunchError(
            f"{error}; {len(job_ids)} of {len(plans)} runs had been submitted before and go on. "
            f"End them with `hpclab cancel {sweep.folder.path}`, or resume the others one by one"
        ) from error
    finally:
        values = [member.values for member in sweep.members]
        sweep.folder.write(values, [*job_ids, *[None] * (len(plans) - len(job_ids))])
    return job_ids


def _batches(plans: Sequence[SubmissionPlan], size: int) -> list[Sequence[SubmissionPlan]]:
    return [plans[start : start + size] for start in range(0, len(plans), size)]


def _array(sweep: SweepPlan, size: int) -> Array:
    return Array(sweep.folder.path.name, size, sweep.folder.submitit)


def refuse_here(*, local: bool, dry_run: bool) -> None:
    """Check that a sweep goes to Slurm.

    Raises:
        ConfigError: it does not.
    """
    if local or dry_run:
        raise ConfigError("--sweep is a job array of Slurm; --local and --dry-run run one job: leave --sweep out")
