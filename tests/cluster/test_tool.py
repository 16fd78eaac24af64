"""tools/slurm_cluster.py for real: a cluster of its own, from up to down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_lab.cgroups import MOUNT_POINTS
from slurm_lab.processes import members
from slurm_lab.settings import Layout, load_settings

from tests.cluster.conftest import TOOL
from tests.cluster.slurm import SlurmCluster, wait_until

pytestmark = pytest.mark.cluster

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def tool(state: Path) -> Iterator[Tool]:
    """The command on this test's state folder; whatever the test started is ended after it."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(TOOL), "--state", str(state), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    yield run
    assert run("down").returncode == 0


def assert_nothing_of(state: Path) -> None:
    layout = Layout(state)
    assert members(layout) == []
    assert not [mount for mount in MOUNT_POINTS.values() if (mount / layout.identity).exists()]
    assert str(state) not in Path("/proc/mounts").read_text()
    assert {path.name for path in state.iterdir()} <= {"log", "lock"}


def test_a_second_cluster_lives_beside_the_first(cluster: SlurmCluster, tool: Tool, state: Path) -> None:
    assert tool("up", "--nodes", "1", "--tracking", "linuxproc").returncode == 0
    assert tool("exec", "ctl", "srun", "hostname").stdout == "n1\n"
    assert sorted(cluster.run("srun", "-N2", "hostname").stdout.split()) == ["n1", "n2"]
    again = tool("up")
    assert again.returncode == 1
    assert "up" in again.stderr
    assert len(again.stderr.splitlines()) == 1
    assert tool("down").stdout == "down\n"
    assert_nothing_of(state)
    assert cluster.run("srun", "-N2", "true").returncode == 0


def test_a_power_cut_takes_everything_and_boot_brings_the_node_back(tool: Tool) -> None:
    assert tool("up", "--nodes", "1").returncode == 0
    assert tool("exec", "ctl", "ssh", "n1", "hostname").stdout == "n1\n"
    tool("exec", "ctl", "sbatch", "--output=/dev/null", "--wrap=sleep 1000")
    wait_until(lambda: "sleep 1000" in tool("ps", "n1").stdout, "the job on n1")
    assert tool("crash", "n1").returncode == 0
    assert "boot n1" in tool("ps", "n1").stderr
    assert tool("crash", "n1").returncode == 1
    assert tool("boot", "n1").returncode == 0
    assert "sleep 1000" not in tool("ps", "n1").stdout
    assert tool("boot", "n1").returncode == 1
    wait_until(lambda: "n1" in tool("exec", "ctl", "ssh", "n1", "hostname").stdout, "sshd on n1")
    assert "slurmd" in tool("logs", "n1").stdout


def test_down_ends_what_an_interrupted_up_left(tool: Tool, state: Path) -> None:
    command = [sys.executable, str(TOOL), "--state", str(state), "up"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: members(Layout(state)), "the first process of the cluster")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert tool("down").returncode == 0
    assert_nothing_of(state)
    assert tool("down").stdout.startswith("nothing was up")


def test_up_that_fails_says_why_and_leaves_nothing(tool: Tool, state: Path) -> None:
    failed = tool("up", "--conf", "Nonsense=1")
    assert failed.returncode == 1
    assert "Nonsense" in failed.stderr
    assert_nothing_of(state)


def test_exec_passes_folder_code_and_output(cluster: SlurmCluster) -> None:
    done = cluster.run("sh", "-c", "pwd; hostname; exit 7", host="n2", check=False)
    assert done.returncode == 7
    assert done.stdout.split() == [os.getcwd(), "n2"]  # noqa: PTH109


def test_a_job_cannot_leave_a_process_behind(cluster: SlurmCluster) -> None:
    if load_settings(cluster.layout).tracking == "linuxproc":
        pytest.skip("linuxproc finds a job's processes by their parents, which these leave")
    job = cluster.sbatch("-N2", "--wrap=srun sh -c 'setsid sleep 1001 >/dev/null 2>&1 & setsid sleep 1002 & exit 0'")
    cluster.wait_for_state(job, "COMPLETED")
    cluster.assert_nothing_left()


def test_fake_gpus_are_counted(cluster: SlurmCluster) -> None:
    shown = cluster.run("srun", "-N2", "--gpus-per-node=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout
    assert shown.split() == ["0,1", "0,1"]


def test_a_higher_partition_sends_a_notice_and_requeues(cluster: SlurmCluster, tmp_path: Path) -> None:
    script = tmp_path / "low.sh"
    script.write_text("#!/bin/sh\ntrap 'touch notice; exit 1' USR1\nwhile true; do sleep 0.1; done\n")
    low = cluster.sbatch("--signal=B:USR1", "-N2", "--exclusive", "--requeue", f"--chdir={tmp_path}", str(script))
    without_grace = cluster.sbatch("-p", "lownograce", "-N2", f"--chdir={tmp_path}", "--wrap=sleep 1000")
    cluster.wait_for_state(low, "RUNNING")
    high = cluster.sbatch("-p", "high", "-N2", "--exclusive", f"--chdir={tmp_path}", "--wrap=true")
    wait_until(lambda: (tmp_path / "notice").exists(), "the notice")
    cluster.wait_for_state(high, "COMPLETED")
    cluster.wait_for_state(without_grace, "RUNNING")
    again = cluster.sbatch("-p", "high", "-N2", "--exclusive", f"--chdir={tmp_path}", "--wrap=true")
    cluster.wait_for_state(again, "COMPLETED")
    assert cluster.job(without_grace)["Restarts"] == "1"
