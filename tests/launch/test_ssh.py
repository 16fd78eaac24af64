"""What goes over ssh to a job's other nodes, and which GPUs they use."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpclab.launch import out_of_memory, ssh_node
from hpclab.launch.allotted import parse_allotted
from hpclab.launch.handover import Handover
from hpclab.launch.node import Node
from hpclab.launch.node_job import NodeJob
from hpclab.launch.out_of_memory import hosts_without_memory
from hpclab.launch.ssh import check_ssh, start_script
from hpclab.launch.ssh_node import choose_gpus
from hpclab.run_folder import RunFolder

Program = Callable[[str, str], None]


def test_a_node_gets_the_first_ones_environment_but_for_what_is_true_only_there(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program("python", 'env; grep -i "^Sig[IC]" /proc/$$/status; pwd; cat')
    environment = {
        "TEXT": "it's\n$HOME",
        "BASH_FUNC_module%%": "() { :; }",
        "CUDA_VISIBLE_DEVICES": "3",
        "SLURMD_NODENAME": "n1",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "SSH_AUTH_SOCK": "/x",
    }
    script = start_script(environment, "python", "n2") + '{"payload": 1}\n'
    said = subprocess.run(["bash", "-s"], input=script, capture_output=True, text=True, check=True).stdout
    assert "TEXT=it's\n$HOME\n" in said
    assert "SLURMD_NODENAME=n2\n" in said
    assert "SLURM_JOB_ID=7\n" in said
    assert not {"CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SSH_AUTH_SOCK", "module"} & set(said.split("="))
    ignored = int(next(line.split()[1] for line in said.splitlines() if line.startswith("SigIgn")), 16)
    assert all(ignored & 1 << number - 1 for number in (1, 2, 10, 12, 15)), "HUP INT USR1 USR2 TERM"
    assert said.endswith(f'{tmp_path}\n{{"payload": 1}}\n')


def test_a_host_that_ssh_does_not_reach_is_one_line(program: Program) -> None:
    program("ssh", "echo 'ssh: connect to host n2 port 22: Connection refused' >&2; exit 255")
    problem = check_ssh("n2", "n1")
    assert problem is not None
    assert len(problem.splitlines()) == 1
    assert problem.startswith("n2: no agent could be started over ssh: ssh: connect to host n2 port 22: Connection")
    assert "`ssh n2 true` work on n1" in problem
    program("ssh", 'test "${@: -2:1}" = n2')
    assert check_ssh("n2", "n1") is None


def test_slurm_says_which_gpus() -> None:
    text = (
        "JobId=5 JobState=RUNNING NodeList=n[1-3] JOB_GRES=gpu:a100:5 "
        "Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:2(IDX:0,3) Nodes=n3 CPU_IDs=0-3,8 Mem=0 GRES=gpu:3(IDX:1-2,5) "
        "Nodes=n4 CPU_IDs=0 Mem=0 GRES="
    )
    assert parse_allotted(text) == {"n1": ("0", "3"), "n2": ("0", "3"), "n3": ("1", "2", "5")}


@pytest.mark.parametrize(
    ("present", "given", "chosen"),
    [
        (("0", "1", "2", "3"), ["1", "3"], "1,3"),
        (("0", "1"), ["2", "3"], None),  # ssh leads into the job's cgroup, which numbers its own
        (("0", "1", "2", "3"), [], None),
    ],
)
def test_gpus_of_a_node_that_shows_more_than_the_job_has(
    monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], given: list[str], chosen: str | None
) -> None:
    monkeypatch.setattr(ssh_node, "visible_gpus", lambda _: present)
    variables: dict[str, str] = {}
    choose_gpus(variables, given, 2)
    assert variables.get("CUDA_VISIBLE_DEVICES") == chosen


def test_a_node_that_loses_a_process_for_lack_of_memory_notes_it(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = NodeJob(str(run.path), 2, 1, use_gpus=False, walltime_min=60, signal_lead_s=120, torchrunx_logs="")
    payload = {"job": asdict(job), "node": asdict(Node("11", 1, ("n1", "n2"), 0, pseudo=False)), "gpus": []}
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(json.dumps(payload).encode() + b"\n")))
    Handover.of(run, "11", 0).put("attempt", "0")
    run.logs(0).mkdir(parents=True)
    kills = iter([7])
    monkeypatch.setattr(out_of_memory, "num_kills", lambda: next(kills, 8))

    class Agent:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self) -> None:
            end = time.monotonic() + 10
            while hosts_without_memory(run, 0) != {"n2"}:
                assert time.monotonic() < end, "the note of n2"

    monkeypatch.setattr(ssh_node, "AgentHost", Agent)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        ssh_node.main()
    assert end.value.code == 0
