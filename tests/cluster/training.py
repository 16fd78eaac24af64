"""A tiny training that tests submit to the cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.run_folder import RunFolder
from tests.cluster.slurm import ENDED, SlurmCluster, wait_until

HPCLAB = str(Path(sys.executable).with_name("hpclab"))
PROJECT = Path(__file__).parents[2]
START_S = 240.0
"""Until the first iterations are there: importing torch in all processes takes most of it."""

INTERRUPTED = 600
"""Iterations of a run that is interrupted on its way: some ten seconds of a fast machine, where Slurm and the test that
watches it need one or two for each interruption."""

CONFIG = """\
task: cartpole-balance
run:
  root: {root}
  max_iterations: {iterations}
  save_interval: 100
env:
  num_envs: 4
algorithm:
  num_steps_per_env: 8
  num_learning_epochs: 1
  num_mini_batches: 1
actor:
  hidden_dims: [16]
critic:
  hidden_dims: [16]
sync:
  preset: global
slurm:
  time: 60
  cpus_per_worker: 1
metrics:
  tensorboard: false
"""


def write_config(folder: Path, iterations: int) -> Path:
    """Write a config whose run, `cartpole`, lives in `folder`."""
    path = folder / "cartpole.yaml"
    path.write_text(CONFIG.format(root=folder / "runs", iterations=iterations))
    return path


@dataclass(frozen=True, slots=True)
class Training:
    """A training on the cluster."""

    cluster: SlurmCluster
    run: RunFolder
    job_id: str

    @classmethod
    def submit(cls, cluster: SlurmCluster, folder: Path, *options: str, iterations: int) -> Training:
        """Submit through the command line, from the login node."""
        config = write_config(folder, iterations)
        said = hpclab(cluster, "submit", str(config), "--nodes", "2", *options).stdout
        job_id = next(line.split()[1] for line in said.splitlines() if line.startswith("job:"))
        return cls(cluster, RunFolder(folder / "runs" / "cartpole"), job_id)

    @property
    def iterations(self) -> list[int]:
        """The iterations in metrics.jsonl, in the order they were written."""
        return [record["iteration"] for record in records(self.run.metrics / "metrics.jsonl")]

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The ends of attempts in jobs.jsonl; of one recorded twice, at once and when all is known, the last."""
        return list({one["attempt"]: one for one in records(self.run.jobs) if one["event"] == "end"}.values())

    def wait_for_iterations(self, number: int, attempt: int | None = None) -> None:
        """Wait until the curve has this many, or this many of one attempt."""

        def there() -> bool:
            curve = records(self.run.metrics / "metrics.jsonl")
            if len([one for one in curve if attempt in (None, one["attempt"])]) >= number:
                return True
            state = self.cluster.state(self.job_id)
            assert state not in ENDED, f"job {self.job_id} ended as {state}: {self.words()}"
            return False

        which = "" if attempt is None else f", attempt {attempt}"
        wait_until(there, f"{number} iterations of job {self.job_id}{which}", START_S)

    def wait_for_attempts(self, number: int, timeout_s: float = START_S) -> None:
        """Wait until the end of this many attempts is recorded."""
        wait_until(lambda: len(self.attempts) >= number, f"the end of attempt {number - 1} is recorded", timeout_s)

    def wait_for_end(self, state: str, timeout_s: float = START_S) -> None:
        """Wait until the job has ended in this state and no process of it is left anywhere."""
        try:
            self.cluster.wait_for_state(self.job_id, state, timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.words()}") from None
        self.cluster.assert_nothing_left()
        assert self.cluster.state(self.job_id) == state

    def words(self) -> str:
        """What the job's tasks and the run's launcher wrote, for the message of a failed test."""
        logs = [*self.run.submitit.glob("*.out"), *self.run.path.glob("logs/attempt-*/launcher.log")]
        return "\n".join(f"==> {log} <==\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(logs))


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hpclab(cluster: SlurmCluster, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run hpclab on the login node."""
    return cluster.run(HPCLAB, *arguments, check=check)


def preempt(cluster: SlurmCluster) -> str:
    """Submit a short job of the higher partition that needs all nodes; returns its id."""
    return cluster.sbatch("--partition=high", "--nodes=2", "--exclusive", "--wrap=true")
