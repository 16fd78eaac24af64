"""Hand a plan to Slurm through submitit."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from hpclab.errors import LaunchError
from hpclab.launch.plan import SubmissionPlan

_ANY_NUMBER_OF_TIMEOUTS = 1_000_000
"""submitit takes any signal of a job of at most 10 minutes for a timeout, so its own limit cannot be used."""


class _Executor(SlurmExecutor):
    """submitit's, able to write its script where there is no Slurm."""

    @classmethod
    def affinity(cls) -> int:
        return 2

    def script(self) -> str:
        """Return exactly what `submit` gives to sbatch."""
        return str(self._make_submission_file_text(self._submitit_command_str, ""))


def sbatch_script(plan: SubmissionPlan) -> str:
    """Return the job's script; nothing is written or asked."""
    return _executor(plan).script()


def check_slurm() -> None:
    """Check, before anything is written, that jobs can be submitted from here.

    Raises:
        LaunchError: they cannot.
    """
    if shutil.which("sbatch") is None:
        raise LaunchError("no sbatch here: submit from a login node, or use --local to run the job on this machine")


def submit_job(plan: SubmissionPlan) -> str:
    """Submit and return the job id.

    Raises:
        LaunchError: Slurm refuses, with its own words.
    """
    plan.run.submitit.mkdir(parents=True, exist_ok=True)
    before = set(plan.run.submitit.iterdir())
    try:
        # submitit prints what sbatch complains about, and raises it as well.
        with contextlib.redirect_stderr(io.StringIO()):
            job: Any = _executor(plan).submit(plan.job())
    except (FailedJobError, FailedSubmissionError) as error:
        for path in set(plan.run.submitit.iterdir()) - before:
            path.unlink(missing_ok=True)
        raise LaunchError(f"Slurm refused the job: {_own_words(error)}") from error
    return str(job.job_id)


def _executor(plan: SubmissionPlan) -> _Executor:
    executor = _Executor(folder=Path(plan.run.submitit), max_num_timeout=_ANY_NUMBER_OF_TIMEOUTS)
    executor.update_parameters(**plan.parameters())
    return executor


def _own_words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line.removeprefix("sbatch: error: ") for line in lines if line.startswith("sbatch: error:")]
    return "; ".join(said) or (lines[-1] if lines else type(error).__name__)
