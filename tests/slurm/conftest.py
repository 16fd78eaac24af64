"""Slurm's client commands as scripts that record how they are called. No Slurm is needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpclab.launch.agent_host import AgentHost
from hpclab.run_folder import RunFolder

CONFIG = """\
task: cartpole-balance
run: {{root: {root}, name: tiny}}
env: {{num_envs: 8}}
"""
SBATCH = """\
if [ "$1" = --test-only ]; then
    cat > "$RECORDS/tested.sh"; echo "sbatch: Job 11 to start at 2026-11-29T23:19:35 using 2 processors" >&2; exit
fi
cp "${@: -1}" "$RECORDS/script.sh"; env > "$RECORDS/environment"; echo Submitted batch job 11"""


@dataclass(frozen=True, slots=True)
class FakeSlurm:
    """The recorded calls, and the way to change what a command does."""

    folder: Path

    def command(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/bash\nRECORDS={self.folder}\necho "{name} $*" >> "$RECORDS/calls"\n{script}\n')
        path.chmod(0o755)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def script(self) -> str:
        """What sbatch was given."""
        return (self.folder / "script.sh").read_text()

    def environment(self) -> dict[str, str]:
        """What sbatch, and so the job, had in its environment."""
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "slurm"
    (folder / "bin").mkdir(parents=True)
    fake = FakeSlurm(folder)
    fake.command("sbatch", SBATCH)
    fake.command("scontrol", 'echo "JobId=11 JobState=${STATE:-RUNNING} Reason=None PreemptTime=None"')
    fake.command("squeue", "echo '11 11_N/A'")
    fake.command("scancel", "true")
    fake.command("srun", "true")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    for name in ("SLURM_JOB_ID", "TORCHRUNX_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return fake


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config in a project of its own: its profiles and setup script are used, not this repository's."""
    project = tmp_path / "project"
    (project / "slurm" / "profiles").mkdir(parents=True)
    (project / "slurm" / "setup.sh").write_text("true\n")
    (project / "slurm" / "profiles" / "default.yaml").write_text("gpus_per_node: 1\n")
    site = "partition: gpu\naccount: abc@h100\ngpus_per_node: 4\ncpus_per_worker: 6\nmemory: 64G\ntime: 1-12:00:00\n"
    (project / "slurm" / "profiles" / "site.yaml").write_text(site + "extra: {hint: nomultithread, exclusive: true}\n")
    path = project / "tiny.yaml"
    path.write_text(CONFIG.format(root=tmp_path / "runs"))
    monkeypatch.chdir(project)
    return path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that was made; tests of how one is made have one of their own."""
    folder = RunFolder(tmp_path / "runs" / "tiny")
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentHost, "run", lambda self: True)
    # The notices stay ignored after a task: not in this process.
    for number in (signal.SIGUSR2, signal.SIGTERM):
        monkeypatch.setattr(signal, "SIG_IGN", signal.getsignal(number))


Submit = Callable[..., None]


@pytest.fixture
def submit(config: Path) -> Submit:
    def call(*overrides: str, **options: object) -> None:
        from hpclab.launch.submit import submit

        defaults: dict[str, object] = {
            "num_nodes": 2, "gpus_per_node": None, "workers_per_node": None, "profile": None, "print_only": False,
            "local": False, "dry_run": False, "snapshot": False,
        }  # fmt: skip
        submit(config, list(overrides), **(defaults | options))  # type: ignore[arg-type]

    return call
