"""Hand a plan to Slurm through submitit."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.slurm.slurm import SlurmExecutor

from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import lock, queue
from hpclab.launch.node_job import NodeJob
from hpclab.launch.partition import may_take_later
from hpclab.launch.plan import SubmissionPlan, job_name
from hpclab.launch.private import private_folder

_ANY_NUMBER_OF_TIMEOUTS = 1_000_000
"""submitit takes any signal of a job of at most 10 minutes for a timeout, so its own limit cannot be used."""
_TEST_TIMEOUT_S = 60.0
_SUBMITIT_TAGS = ("%j", "%t", "%A", "%a")
_DEFAULT_ARRAY_SIZE = 1001
_OF_A_SUBMISSION = re.compile(r"[0-9a-f]{32}\.pkl|\.submission_file_[0-9a-f]{32}\.sh")
"""What submitit writes before it has the job's number."""
_ERROR = re.compile(r"(?:sbatch: )?(?:(?:error|fatal|allocation failure): |(?=unrecognized option))(.+)")
_PASSING = ("Required node not available", "Required partition not available", "Requested nodes are busy")
"""What --test-only calls a failure although the job could wait until it is over; the submission decides."""
_DOUBTFUL = "Requested node configuration is not available"
"""What it says of a job that can never run, and of one whose nodes are drained now."""


class RefusedError(LaunchError):
    """Slurm takes none of what it was given."""


class _Executor(SlurmExecutor):
    """submitit's, able to write its script where there is no Slurm."""

    @classmethod
    def affinity(cls) -> int:
        return 2

    def script(self) -> str:
        """Return exactly what `submit` gives to sbatch."""
        return str(self._make_submission_file_text(self._submitit_command_str, ""))


@dataclass(frozen=True, slots=True)
class Array:
    """A job array whose members ask for the same."""

    name: str
    size: int
    submitit: Path
    """Folder of the members' pickles and output."""


def sbatch_script(plan: SubmissionPlan, array: Array | None = None) -> str:
    """Return the script of a job, or of an array of such jobs; nothing is written or asked."""
    executor = _executor(plan, array)
    if array is not None and array.size > 1:
        executor.parameters["map_count"] = array.size
    return executor.script()


def check_slurm() -> None:
    """Check, before anything is written, that jobs can be submitted from here.

    Raises:
        LaunchError: they cannot.
    """
    if shutil.which("sbatch") is None:
        raise LaunchError("no sbatch here: submit from a login node, or use --local to run the job on this machine")


@contextlib.contextmanager
def nothing_left_if_refused(folder: Path) -> Iterator[None]:
    """Remove a folder that the block makes when Slurm refuses its jobs; one that was there before stays."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except RefusedError:
        if folder in new:
            shutil.rmtree(folder, ignore_errors=True)
            for parent in new[1:]:
                with contextlib.suppress(OSError):  # another run may have come into it
                    parent.rmdir()
        raise


def max_array_size() -> int:
    """Return how many members an array may have here; Slurm's default where it does not answer."""
    found = re.search(
        r"^MaxArraySize\s*=\s*(\d+)", queue.slurm_command("scontrol", "show", "config") or "", re.MULTILINE
    )
    return max(1, int(found[1])) if found else _DEFAULT_ARRAY_SIZE


def check_job(plan: SubmissionPlan, array: Array | None = None) -> str:
    """Let Slurm judge a job's script without submitting it, before anything is written.

    Returns:
        When it expects to start it, in words; empty when it does not say.

    Raises:
        LaunchError: Slurm would refuse the job, with its own words.
    """
    try:
        done = subprocess.run(
            ["sbatch", "--test-only"], input=sbatch_script(plan, array),
            capture_output=True, text=True, errors="replace", timeout=_TEST_TIMEOUT_S, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""  # a busy controller: the submission itself will tell
    said = done.stderr + done.stdout
    if done.returncode == 0:
        found = re.search(r"to start at (\S+)", said)
        return found[1].replace("T", " ") if found else ""
    words = _own_words(said)
    if any(passing in words for passing in _PASSING) or (
        _DOUBTFUL in words and may_take_later(plan.config.slurm.partition, plan.num_nodes)
    ):
        return f"later; Slurm now says: {words}"
    raise RefusedError(f"Slurm refuses the job: {words}")


def submit_job(plan: SubmissionPlan) -> str:
    """Submit and return the job id; raises as `submit_array`."""
    return _submit(_executor(plan), plan.run.submitit, [_job(plan)])[0]


def submit_array(plans: Sequence[SubmissionPlan], array: Array) -> list[str]:
    """Submit one job for each plan, all together, and return their ids: `11_0`, `11_1`, ...

    Raises:
        ConfigError: the folder of its pickles is not the user's own.
        LaunchError: Slurm refuses, with its own words.
    """
    return _submit(_executor(plans[0], array), array.submitit, [_job(plan) for plan in plans])


def _job(plan: SubmissionPlan) -> NodeJob:
    return plan.job(submitter=lock.read_owner(plan.run))


def _submit(executor: _Executor, folder: Path, jobs: Sequence[Callable[[], Any]]) -> list[str]:
    private_folder(folder)
    before = set(folder.iterdir())
    try:
        # submitit prints what sbatch complains about, and raises it as well.
        with contextlib.redirect_stderr(io.StringIO()):
            submitted: list[Any] = executor.submit_array(jobs)
    except (FailedJobError, FailedSubmissionError) as error:
        # Of a sweep, other members may run, and write here too.
        for path in set(folder.iterdir()) - before:
            if _OF_A_SUBMISSION.fullmatch(path.name):
                path.unlink(missing_ok=True)
        raise RefusedError(f"Slurm refused the job: {_own_words(str(error))}") from error
    return [str(job.job_id) for job in submitted]


def _executor(plan: SubmissionPlan, array: Array | None = None) -> _Executor:
    folder = plan.run.submitit if array is None else array.submitit
    executor = _Executor(
        folder=folder,
        max_num_timeout=_ANY_NUMBER_OF_TIMEOUTS,
        # Without srun, Python takes the place of the batch shell: notices go to that process alone.
        python=plan.python if plan.config.slurm.agents == "tasks" else f"exec {plan.python}",
    )
    parameters = plan.parameters()
    if array is not None:
        parallel = plan.config.slurm.max_parallel or array.size
        parameters |= {"job_name": job_name(array.name), "array_parallelism": parallel}
    if "%" in str(folder):
        _keep_percent(parameters, folder, "%A_%a" if array is not None and array.size > 1 else "%j")
    executor.update_parameters(**parameters)
    return executor


def _keep_percent(parameters: dict[str, Any], folder: Path, job: str) -> None:
    """Name the output files so that a '%' of their folder stays one: Slurm replaces %u, %x, ... in them."""
    if tag := next((tag for tag in _SUBMITIT_TAGS if tag in str(folder)), None):
        raise ConfigError(
            f"{folder}: holds {tag}, which stands for a job's number; choose another run.root or run.name"
        )
    output = f"{str(folder).replace('%', '%%')}/{job}_%t_log.out"
    parameters["additional_parameters"] |= {"output": output.replace("%t", "0")}
    if "srun_args" in parameters:
        parameters["srun_args"] = [*parameters["srun_args"], "--output", output]  # the last one counts


def _own_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [match[1] for line in lines if (match := _ERROR.match(line))]
    return "; ".join(dict.fromkeys(marked)) or (lines[-1] if lines else "sbatch failed without a word")
