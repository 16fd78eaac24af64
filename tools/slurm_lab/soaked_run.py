"""One training on a cluster as the soak sees it: submit, follow, resume, find its ranks."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpclab.launch import jobs
from hpclab.metrics.jsonl import read_last
from hpclab.run_folder import RunFolder
from slurm_lab.cluster import host_command
from slurm_lab.settings import CONTROLLER, Layout, load_settings

ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT"}
_OWN = re.compile(r"\S*python\S* -m slurm_lab\.host |munged |sshd: |slurmd |slurmctld |: slurmscriptd|ps -e")
_RANK_LINE = re.compile(r"rank (\d+) of \d+ on (\S+) \(pid (\d+)\)")
_POLL_S = 0.2

CONFIG = """\
task: cartpole-balance
run: {{root: {root}, name: soak, max_iterations: 1000000, save_interval: 100, keep_last: 3}}
env: {{num_envs: 32}}
algorithm: {{num_steps_per_env: 24}}
actor: {{hidden_dims: [16]}}
critic: {{hidden_dims: [16]}}
sync: {{preset: global}}
slurm:
  time: 120
  cpus_per_worker: 1
  requeue: {{crashed: unlimited, node_failure: unlimited, no_progress: 5}}
metrics: {{tensorboard: false}}
"""


class SoakError(Exception):
    """The run did not come as far as it should have."""


@dataclass(slots=True)
class SoakedRun:
    """A run and the job that trains it."""

    layout: Layout
    run: RunFolder
    job_id: str = ""
    said: list[str] = field(default_factory=list)
    """What our own commands printed when they failed."""

    @property
    def hosts(self) -> list[str]:
        return list(load_settings(self.layout).addresses)

    @property
    def iteration(self) -> int:
        """The last iteration that was reported; -1 before the first."""
        last = read_last(self.run.metrics / "metrics.jsonl")
        return -1 if last is None else int(last["iteration"])

    @property
    def attempt(self) -> int:
        return len(jobs.read(self.run)) - 1

    def on(self, host: str, *command: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command on a host; a failure is kept in `said`."""
        argv, environment = host_command(self.layout, host, command)
        environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s)
        if done.returncode != 0:
            self.said.append(f"{' '.join(command)}: {done.stdout}{done.stderr}".strip())
        return done

    def hpclab(self, *arguments: str) -> str:
        """Run hpclab on the login node and return what it prints.

        Raises:
            SoakError: it failed.
        """
        done = self.on(CONTROLLER, sys.executable, "-m", "hpclab", *arguments)
        if done.returncode != 0:
            raise SoakError(self.said[-1])
        return done.stdout

    def submit(self, config: Path, *, workers: int) -> None:
        said = self.hpclab("submit", str(config), "--nodes", "2", "--workers-per-node", str(workers))
        self._read_job(said)

    def resume(self, *changes: str) -> None:
        self._read_job(self.hpclab("resume", str(self.run.path), *changes))

    def _read_job(self, said: str) -> None:
        found = re.search(r"^job:\s+(\d+)", said, re.MULTILINE)
        if found is None:
            raise SoakError(f"no job id in: {said}")
        self.job_id = found[1]

    def state(self) -> str:
        shown = self.on(CONTROLLER, "scontrol", "show", "job", "--oneliner", self.job_id).stdout
        found = re.search(r"JobState=(\S+)", shown)
        return found[1] if found else "unknown"

    def wait(self, happened: Callable[[], object], what: str, timeout_s: float) -> None:
        """Wait until something has happened.

        Raises:
            SoakError: it has not within the time.
        """
        deadline = time.monotonic() + timeout_s
        while not happened():
            if time.monotonic() > deadline:
                raise SoakError(f"not within {timeout_s:g} s: {what}; job {self.job_id} is {self.state()}")
            time.sleep(_POLL_S)

    def ranks(self) -> list[tuple[int, str, int]]:
        """Return rank, host and process id there of every rank of the newest attempt, as their logs say."""
        found = []
        for log in sorted(self.run.logs(self.attempt).glob("rank-*.log")):
            match = _RANK_LINE.search(log.read_text(errors="replace"))
            if match:
                found.append((int(match[1]), match[2], int(match[3])))
        return found

    def processes(self) -> list[str]:
        """Return every process on every host that is not the cluster's own, as `n1: PID ARGUMENTS`."""
        found = []
        for host in self.hosts:
            lines = self.on(host, "ps", "-e", "--no-headers", "-o", "pid,args").stdout.splitlines()
            found += [f"{host}: {line.strip()}" for line in lines if not _OWN.match(line.strip().partition(" ")[2])]
        return found
