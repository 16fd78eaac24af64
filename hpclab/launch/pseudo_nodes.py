"""Run a submission on this machine: the same job, through submitit's local executor, one task per pseudo-node."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import environment, jobs
from hpclab.launch.devices import CPU, visible_gpus
from hpclab.launch.follow import Following
from hpclab.launch.lock import Owner
from hpclab.launch.plan import SubmissionPlan
from hpclab.launch.preemption import Notices
from hpclab.worker.stop import hangup_signals

_ANY_NUMBER_OF_TIMEOUTS = 1_000_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)


def devices_by_node(plan: SubmissionPlan) -> tuple[tuple[str, ...], ...]:
    """Return the devices of each pseudo-node's workers: this machine's GPUs in order, or the CPU.

    Raises:
        ConfigError: the plan needs more GPUs than there are.
    """
    workers = plan.workers_per_node
    if not plan.use_gpus:
        return ((CPU,) * workers,) * plan.num_nodes
    gpus = visible_gpus()
    if len(gpus) < plan.world_size:
        raise ConfigError(
            f"--local: {plan.num_nodes} nodes with {workers} GPUs need {plan.world_size}, but {len(gpus)} are visible "
            "here; lower --nodes or --gpus-per-node, or use --workers-per-node for CPU workers"
        )
    return tuple(gpus[node * workers : (node + 1) * workers] for node in range(plan.num_nodes))


def run_here(plan: SubmissionPlan, *, quiet: bool = False) -> jobs.Attempt:
    """Run the job of a run that this process owns, in the foreground, and return its last attempt.

    Ctrl-C, TERM or HUP makes all ranks save and stop; a second Ctrl-C ends everything at once.

    Raises:
        ConfigError: too few GPUs here.
        LaunchError: the job's tasks ended without starting an attempt.
    """
    import submitit

    job = plan.job(devices_by_node=devices_by_node(plan), submitter=Owner.this_process())
    executor = submitit.LocalExecutor(folder=plan.run.submitit, max_num_timeout=_ANY_NUMBER_OF_TIMEOUTS)
    executor.update_parameters(
        tasks_per_node=plan.num_nodes,
        timeout_min=plan.config.slurm.time,
        signal_delay_s=plan.signal_lead_s,
        stderr_to_stdout=True,
    )
    first_new = len(jobs.read(plan.run))
    with environment.replaced(environment.frozen(environment.local(), plan.code)), _deaf_to_interrupts():
        submitted: Any = executor.submit(job)
    controller: subprocess.Popen[bytes] = submitted._process

    interrupts = 0

    def on_notice(number: signal.Signals) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            _kill(controller)
        elif controller.poll() is None:
            # The controller passes on TERM only; the tasks get the others from here.
            targets = psutil.Process(controller.pid).children() if number == signal.SIGUSR2 else [controller]
            for target in targets:
                target.send_signal(signal.SIGUSR2 if number == signal.SIGUSR2 else signal.SIGTERM)
            print(f"{number.name}: saving and stopping; Ctrl-C again to end at once", file=sys.stderr, flush=True)

    try:
        with Notices(on_notice, (*_SIGNALS, *hangup_signals())):
            if quiet:
                controller.wait()
            else:
                with Following(plan.run.rank_log(first_new, 0), sys.stdout):
                    controller.wait()
    finally:
        _kill(controller)
    attempts = jobs.read(plan.run)[first_new:]
    if not attempts:
        raise LaunchError(f"the job's tasks ended before an attempt began; see {plan.run.submitit}/*.out")
    return attempts[-1]


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    # submitit's controller answers Ctrl-C by killing its tasks after a second, before they could save; HUP ends it.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill(controller: subprocess.Popen[bytes]) -> None:
    """End the controller and all it started, agents in their own sessions included."""
    if controller.poll() is not None:
        return
    family = psutil.Process(controller.pid).children(recursive=True)
    controller.kill()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    controller.wait()
