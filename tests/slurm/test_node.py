from __future__ import annotations

import pytest

from hpclab.errors import LaunchError
from hpclab.launch.node import Node, own_job_id


def step(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    given = {
        "SLURM_JOB_ID": "11", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }  # fmt: skip
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURMD_NODENAME", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (given | variables).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("gpu[001-003,007]", ("gpu001", "gpu002", "gpu003", "gpu007")),
        ("linux[1,2]", ("linux1", "linux2")),
        ("alpha,beta", ("alpha", "beta")),
        ("jean-zay-ia810", ("jean-zay-ia810",)),
        ("nodeA,nodeB[001,003],nodeC", ("nodeA", "nodeB001", "nodeB003", "nodeC")),
        ("b04-[09-10]", ("b04-09", "b04-10")),
        ("c1-[0-2]-[5,7]", ("c1-0-5", "c1-0-7", "c1-1-5", "c1-1-7", "c1-2-5", "c1-2-7")),
    ],
)
def test_host_lists(monkeypatch: pytest.MonkeyPatch, nodes: str, hosts: tuple[str, ...]) -> None:
    step(monkeypatch, SLURM_JOB_NODELIST=nodes, SLURM_NTASKS=str(len(hosts)))
    assert Node.of_slurm().hosts == hosts


def test_a_nodes_name_decides_which_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    step(monkeypatch, SLURM_NODEID="0", SLURMD_NODENAME="n2", SLURM_RESTART_COUNT="3")
    assert Node.of_slurm() == Node("11", 1, ("n1", "n2"), restart=3, pseudo=False)


@pytest.mark.parametrize("raw_id", ["11", "12"])  # the last member to start has the array's own number
def test_an_array_member_is_called_by_array_and_task(monkeypatch: pytest.MonkeyPatch, raw_id: str) -> None:
    step(monkeypatch, SLURM_JOB_ID=raw_id, SLURM_ARRAY_JOB_ID="11", SLURM_ARRAY_TASK_ID="1")
    assert Node.of_slurm().job_id == "11_1"
    assert own_job_id() == "11_1", "the name under which it holds its lock"
    step(monkeypatch)
    assert own_job_id() == Node.of_slurm().job_id == "11"


def test_more_than_one_task_a_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    step(monkeypatch, SLURM_NTASKS="4")
    with pytest.raises(LaunchError, match="4 tasks on 2 nodes; start exactly one per node"):
        Node.of_slurm()


def test_outside_a_step_the_way_in_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    step(monkeypatch)
    monkeypatch.delenv("SLURM_PROCID")
    with pytest.raises(LaunchError, match="SLURM_PROCID is not set"):
        Node.of_slurm()
