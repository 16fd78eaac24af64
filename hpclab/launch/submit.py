"""`hpclab submit`: train on Slurm, or run the same job here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpclab.errors import WorkerError
from hpclab.launch import environment, lock, runs
from hpclab.launch.plan import SubmissionPlan, make_plan
from hpclab.launch.slurm import check_slurm, sbatch_script, submit_job
from hpclab.launch.train import EXIT_STOPPED


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
) -> None:
    """Submit a config's run; see `plan.make_plan` for the arguments.

    Args:
        print_only: print the plan and the sbatch script, and start nothing.
        local: run the job on this machine, in the foreground.
        dry_run: `local`, scaled down, with a report.

    Raises:
        ConfigError: the request cannot be carried out; nothing was written.
        LaunchError: Slurm refused the job.
        WorkerError: a local run failed.
        SystemExit: a local run was stopped (130), or the dry run ended (0, or 1 when a check failed).
    """
    plan = make_plan(
        config_path,
        overrides,
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        workers_per_node=workers_per_node,
        profile=profile,
    )
    if print_only:
        print(f"{plan}\n\n{sbatch_script(plan)}")
    elif dry_run:
        from hpclab.launch.rehearsal import rehearse

        raise SystemExit(rehearse(plan))
    elif local:
        run_locally(plan)
    else:
        submit_to_slurm(plan)


def submit_to_slurm(plan: SubmissionPlan) -> None:
    """Create or open the run, submit it, and say what to do next."""
    check_slurm()
    variables, dropped = environment.for_submission()
    if dropped:
        print(f"left out of the job's environment: {', '.join(dropped)}")
    with runs.opened(plan.run, plan.config, {"command": "submit", "local": False}) as opened:
        plan = replace(plan, config=opened.config)
        with environment.replaced(variables):
            job_id = submit_job(plan)
        lock.hand_over(plan.run, lock.Owner.job(job_id))
    for note in opened.notes:
        print(note)
    print(f"job:        {job_id}\nrun folder: {plan.run.path}")
    for command in ("status", "logs -f", "cancel"):
        print(f"  hpclab {command} {plan.run.path}")


def run_locally(plan: SubmissionPlan) -> None:
    """Create or open the run and run its job here."""
    from hpclab.launch.pseudo_nodes import devices_by_node, run_here

    devices_by_node(plan)  # fails before anything is written
    with runs.opened(plan.run, plan.config, {"command": "submit", "local": True}) as opened:
        for note in opened.notes:
            print(note)
        print(f"run folder: {plan.run.path}", flush=True)
        attempt = run_here(replace(plan, config=opened.config))
    if attempt.cause == "crashed":
        raise WorkerError(attempt.note or f"the run failed; see {plan.run.logs(attempt.number)}")
    if attempt.cause != "completed":
        print(f"stopped; go on with: hpclab resume {plan.run.path}", flush=True)
        raise SystemExit(EXIT_STOPPED)
