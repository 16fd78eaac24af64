"""A Slurm cluster as tests use it: run commands on its hosts, wait for job states, see that nothing is left behind."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from slurm_lab.cluster import host_command
from slurm_lab.settings import CONTROLLER, Layout, load_settings

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}
OWN_PROCESSES = re.compile(r"\S*python\S* -m slurm_lab\.host |munged |sshd: |slurmd |slurmctld |: slurmscriptd|ps -e")
"""What runs on a host that has no job: process 1, the daemons, and the ps that looks."""

POLL_S = 0.25
"""Between two questions to Slurm, each of which starts some processes."""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Poll a condition until it is true. Raises AssertionError with `what` at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A cluster that is up."""

    layout: Layout

    @property
    def hosts(self) -> list[str]:
        return list(load_settings(self.layout).addresses)

    def run(
        self, *command: str, host: str = CONTROLLER, check: bool = True, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host; its output is in the assertion when it fails and `check` is set."""
        argv, environment = host_command(self.layout, host, command)
        # Several ranks share the two cores of a test machine: more threads only get in each other's way.
        environment |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s)
        if check:
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done

    def sbatch(self, *arguments: str) -> str:
        """Submit a job and return its id; what it prints is dropped unless --output is among the arguments."""
        return self.run("sbatch", "--parsable", "--output=/dev/null", *arguments).stdout.strip()

    def job(self, job_id: str) -> dict[str, str]:
        """What scontrol shows of a job: JobState, Reason, Restarts, ..."""
        shown = self.run("scontrol", "show", "job", "--oneliner", job_id).stdout
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def state(self, job_id: str) -> str:
        return self.job(job_id)["JobState"]

    def wait_for_state(self, job_id: str, *states: str, timeout_s: float = 90.0) -> None:
        """Wait until a job is in one of the states; fails at once when it has ended in another one."""
        deadline = time.monotonic() + timeout_s
        while (state := self.state(job_id)) not in states:
            assert state not in ENDED, f"job {job_id} ended as {state}, not {' or '.join(states)}"
            assert time.monotonic() < deadline, (
                f"job {job_id} is {self.job(job_id)}, not {states} after {timeout_s:g} s"
            )
            time.sleep(POLL_S)

    def processes(self, host: str) -> list[str]:
        """Every process on a host that is not the cluster's own: `PID ARGUMENTS`, zombies included."""
        lines = self.run("ps", "-e", "--no-headers", "-o", "pid,args", host=host).stdout.splitlines()
        return [line.strip() for line in lines if not OWN_PROCESSES.match(line.strip().partition(" ")[2])]

    def assert_nothing_left(self, timeout_s: float = 60.0) -> None:
        """No process of any job is on any host, after Slurm has had time to clean up."""

        def left() -> dict[str, list[str]]:
            return {host: found for host in self.hosts if (found := self.processes(host))}

        deadline = time.monotonic() + timeout_s
        while found := left():
            assert time.monotonic() < deadline, f"left running: {found}"
            time.sleep(POLL_S)

    def cancel_everything(self) -> None:
        """Cancel all jobs and wait until they are gone: what a failed test left must not disturb the next one."""
        self.run("scancel", "--user=root")
        wait_until(lambda: not self.run("squeue", "--noheader").stdout.strip(), "an empty queue")
