"""What a cluster is made of, and where its files lie."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Tracking = Literal["cgroup/v1", "cgroup/v2", "linuxproc"]

STATE_VARIABLE = "HPCLAB_CLUSTER"
"""Environment variable that names the state folder when --state is not given."""
CONTROLLER = "ctl"
"""The login node: slurmctld runs there, jobs are submitted there."""
SUBNET = "10.77.0"
"""First three octets of every host's address. Each cluster has a network of its own, so all may use the same."""
MAX_NODES = 200


class ClusterError(Exception):
    """A command could not be carried out; the message is one line with place, problem and next action."""


class DaemonError(ClusterError):
    """A daemon of the cluster did not start, or a node did not become ready."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One cluster. Written to its state folder, so that `boot` starts a host as `up` did."""

    nodes: int = 2
    cpus: int = 32
    """CPUs each node claims to have; nothing binds to them."""
    memory_mb: int = 128_000
    """Memory each node claims to have [MB]; nothing enforces it, but see `memory_cgroup`."""
    gpus: int = 2
    """Fake GPUs of each node: Slurm counts them and sets CUDA_VISIBLE_DEVICES, there is no device behind."""
    tracking: Tracking = "linuxproc"
    """How Slurm finds a job's processes. cgroup: signals reach the tasks only. linuxproc: every process of the step."""
    preempt_notice: Literal["user-signal", "term"] = "user-signal"
    """What a preempted job with --signal=USR2 gets first: that signal, or CONT and TERM only."""
    grace_s: int = 20
    """Time between the notice of a preemption and the end of the job [s]."""
    kill_wait_s: int = 5
    """Time between TERM and KILL at a cancel or at the time limit [s]."""
    cred_expire_s: int = 5
    """Life of a job credential [s], at least 5; a requeued job waits one second longer before it may start again."""
    accounting: bool = False
    """Run slurmdbd, so that sacct answers."""
    memory_cgroup: str = ""
    """Folder below which each host keeps what its jobs may use of memory: the kernel then kills a process of a job that
    takes more than its --mem. Empty: no limits."""
    ssh: bool = True
    """Run an sshd on every node."""
    extra: tuple[str, ...] = ()
    """Further lines of slurm.conf."""

    @property
    def addresses(self) -> dict[str, str]:
        """Host name -> IPv4 address: the controller first, then n1, n2, ..."""
        nodes = {f"n{i}": f"{SUBNET}.{i}" for i in range(1, self.nodes + 1)}
        return {CONTROLLER: f"{SUBNET}.254"} | nodes


@dataclass(frozen=True, slots=True)
class Layout:
    """Names every file of a cluster under its state folder. It touches nothing."""

    state: Path
    """Absolute; the same path on every host, since all see this machine's files."""

    @property
    def settings(self) -> Path:
        """cluster.json; also the mark of a folder that this tool may clear."""
        return self.state / "cluster.json"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def slurm_etc(self) -> Path:
        return self.etc / "slurm"

    @property
    def ssh(self) -> Path:
        return self.state / "ssh"

    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def spool(self) -> Path:
        return self.state / "spool"

    @property
    def controller_state(self) -> Path:
        return self.state / "slurmctld"

    @property
    def database(self) -> Path:
        return self.state / "database"

    @property
    def devices(self) -> Path:
        return self.state / "dev"

    @property
    def log(self) -> Path:
        """Kept by `down`, cleared by `up`."""
        return self.state / "log"

    @property
    def munge_key(self) -> Path:
        return self.run / "munge.key"

    @property
    def identity(self) -> str:
        """Short name of this cluster among all of the machine: it names its cgroup."""
        return "hpclab-" + hashlib.sha256(os.fsencode(self.state)).hexdigest()[:10]

    def folders(self) -> tuple[Path, ...]:
        """Everything `down` removes."""
        return (self.etc, self.ssh, self.run, self.spool, self.controller_state, self.database, self.devices)

    def console(self, host: str) -> Path:
        """What the host's own processes wrote to their standard output and error."""
        return self.log / f"{host}.log"


def default_state() -> Path:
    """The state folder when the command names none: $HPCLAB_CLUSTER, or one under the temporary folder."""
    return Path(os.environ.get(STATE_VARIABLE) or Path(tempfile.gettempdir()) / "hpclab-cluster")


def save_settings(layout: Layout, settings: Settings) -> None:
    layout.settings.write_text(json.dumps(dataclasses.asdict(settings), indent=1) + "\n")


def load_settings(layout: Layout) -> Settings:
    """Read the settings of a cluster that is up.

    Raises:
        ClusterError: the state folder holds no cluster.
    """
    try:
        values = json.loads(layout.settings.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ClusterError(f"no cluster is up in {layout.state}; start one with: up") from None
    return Settings(**values | {"extra": tuple(values["extra"])})
