"""A cluster that answers as Slurm 23.11 does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

CONFIG = """\
Configuration data as of 2026-11-29T22:00:00
AccountingStorageType   = (null)
JobRequeue              = 1
KillWait                = 30 sec
MaxArraySize            = 1001
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
ProctrackType           = proctrack/cgroup
SLURM_VERSION           = 23.11.4
SlurmctldHost[0]        = head(127.0.0.1)

Slurmctld(primary) at head is UP
"""
PARTITIONS = (
    "PartitionName=low AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES GraceTime=30 MaxNodes=2 "
    "MaxTime=1-00:00:00 MinNodes=0 PreemptMode=REQUEUE State=UP TotalCPUs=16 TotalNodes=3\n"
    "PartitionName=high AllowAccounts=abc,def Default=NO GraceTime=0 MaxNodes=UNLIMITED MaxTime=UNLIMITED "
    "PreemptMode=OFF State=DOWN TotalNodes=1"
)
NODES = "n1|16|64000|gpu:a100:4(S:0-1)|idle\nn2|16|64000|gpu:a100:4|mixed\nn3|8|32000|(null)|drained*"  # fmt: skip


@pytest.fixture
def cluster(program: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands, and a project whose profile asks for little; it is the working folder."""
    scontrol = f"if [ $2 = config ]; then cat <<'E'\n{CONFIG}E\nelse cat <<'E'\n{PARTITIONS}\nE\nfi"
    program("scontrol", scontrol)
    program("sinfo", f"cat <<'E'\n{NODES}\nE")
    for name in ("sbatch", "srun", "scancel", "squeue"):
        program(name, "true")
    project = tmp_path / "project"
    (project / "slurm" / "profiles").mkdir(parents=True)
    (project / "slurm" / "profiles" / "default.yaml").write_text("gpus_per_node: 2\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path / "warp"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return project
