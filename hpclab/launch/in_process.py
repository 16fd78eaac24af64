"""Train in this very process: one worker, no launcher, the console on this terminal."""

from __future__ import annotations

from hpclab.errors import HpclabError
from hpclab.launch import jobs
from hpclab.launch.network import LOOPBACK
from hpclab.run_folder import RunFolder
from hpclab.worker.spec import Outcome, WorkerSpec


def train_in_process(run: RunFolder, device: str) -> Outcome:
    """Train one attempt of a run that this process owns, and record how it ended.

    Raises:
        HpclabError: it failed.
    """
    attempt = jobs.begin(run, "in_process", hosts=[LOOPBACK], num_workers=1)
    run.logs(attempt).mkdir(parents=True, exist_ok=True)
    spec = WorkerSpec(run_folder=str(run.path), attempt=attempt, devices=(device,), console=True)
    cause: jobs.Cause = "crashed"
    note = ""
    try:
        from hpclab.worker.context import WorkerContext
        from hpclab.worker.main import run_worker

        outcome = run_worker(spec, WorkerContext.single())
        cause = "completed" if outcome.kind == "completed" else "cancelled"
    except KeyboardInterrupt:
        cause, note = "cancelled", "interrupted before it could save"
        raise
    except HpclabError as error:
        note = str(error).partition("\n")[0]
        raise
    finally:
        jobs.finish(run, attempt, cause, note=note)
    return outcome
