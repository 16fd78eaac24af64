"""`hpclab submit`: train on Slurm, or run the same job here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hpclab.errors import WorkerError
from hpclab.launch import environment, lock, runs
from hpclab.launch.job_code import how_submitted, with_snapshot
from hpclab.launch.output import dispensable_output
from hpclab.launch.plan import SubmissionPlan, make_plan
from hpclab.launch.slurm import check_job, check_slurm, nothing_left_if_refused, sbatch_script, submit_job
from hpclab.launch.snapshot import Checkout, write_snapshot
from hpclab.launch.sweep_submit import refuse_here, submit_sweep
from hpclab.launch.train import EXIT_STOPPED
from hpclab.launch.uninterrupted import uninterrupted


def submit(
    config_path: Path,
    overrides: list[str],
    *,
    num_nodes: int | None,
    gpus_per_node: int | None,
    workers_per_node: int | None,
    profile: str | None,
    print_only: bool,
    local: bool,
    dry_run: bool,
    snapshot: bool = True,
    sweep: Sequence[str] = (),
) -> None:
    """Submit a config's run; see `plan.make_plan` for the arguments.

    Args:
        print_only: print the plan and the sbatch script, and start nothing.
        local: run the job on this machine, in the foreground.
        dry_run: `local`, scaled down, with a report.
        snapshot: freeze the code that the job runs.
        sweep: settings with several values each; one run for each combination.

    Raises:
        ConfigError: the request cannot be carried out; nothing was written.
        LaunchError: Slurm refused the job.
        WorkerError: a local run failed.
        SystemExit: a local run was stopped (130), or the dry run ended (0, or 1 when a check failed).
    """
    options = {
        "num_nodes": num_nodes,
        "gpus_per_node": gpus_per_node,
        "workers_per_node": workers_per_node,
        "profile": profile,
    }
    if sweep:
        refuse_here(local=local, dry_run=dry_run)
        submit_sweep(config_path, overrides, sweep, snapshot=snapshot, print_only=print_only, **options)
        return
    plan = make_plan(config_path, overrides, **options)  # type: ignore[arg-type]
    checkout = None
    if snapshot and not dry_run:
        plan, checkout = with_snapshot(plan)
    if print_only:
        print(f"{plan}\n\n{sbatch_script(plan)}")
    elif dry_run:
        from hpclab.launch.rehearsal import rehearse

        raise SystemExit(rehearse(plan))
    elif local:
        run_locally(plan, checkout)
    else:
        submit_to_slurm(plan, checkout)


def submit_to_slurm(plan: SubmissionPlan, checkout: Checkout | None) -> None:
    """Create or open the run, submit it, and say what to do next.

    Args:
        plan: what to submit.
        checkout: what to copy into the run's snapshot; None when it stays as it is.
    """
    check_slurm()
    runs.check(plan.run, plan.config)
    variables, dropped = environment.for_submission()
    if dropped:
        print(f"left out of the job's environment: {', '.join(dropped)}")
    with environment.replaced(variables):
        expected_start = check_job(plan)
        with nothing_left_if_refused(plan.run.path), _opened(plan, checkout, local=False) as opened:
            for note in opened.notes:
                print(note)
            with uninterrupted():
                job_id = submit_job(replace(plan, config=opened.config))
                lock.hand_over(plan.run, lock.Owner.job(job_id))
                print(f"job:        {job_id}", flush=True)
    if expected_start:
        print(f"start:      expected {expected_start}")
    print(f"run folder: {plan.run.path}")
    for command in ("status", "logs -f", "cancel"):
        print(f"  hpclab {command} {plan.run.argument}")


@dispensable_output()
def run_locally(plan: SubmissionPlan, checkout: Checkout | None) -> None:
    """Create or open the run and run its job here; `checkout` as of `submit_to_slurm`."""
    from hpclab.launch.pseudo_nodes import devices_by_node, run_here

    devices_by_node(plan)  # fails before anything is written
    with _opened(plan, checkout, local=True) as opened:
        for note in opened.notes:
            print(note)
        print(f"run folder: {plan.run.path}", flush=True)
        attempt = run_here(replace(plan, config=opened.config))
    if attempt.cause == "crashed":
        raise WorkerError(attempt.note or f"the run failed; see {plan.run.logs(attempt.number)}")
    if attempt.cause != "completed":
        print(f"stopped; go on with: hpclab resume {plan.run.argument}", flush=True)
        raise SystemExit(EXIT_STOPPED)


@contextmanager
def _opened(plan: SubmissionPlan, checkout: Checkout | None, *, local: bool) -> Iterator[runs.OpenRun]:
    kept = plan.code is not None and checkout is None
    with runs.opened(plan.run, plan.config, how_submitted(plan, local=local), code_kept=kept) as opened:
        if plan.code is not None and checkout is not None:
            write_snapshot(checkout, plan.code)
        yield opened
