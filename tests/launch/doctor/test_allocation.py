from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpclab.cli import main
from hpclab.launch.doctor import allocation
from hpclab.launch.doctor.allocation import check_allocation, judge, srun_command
from hpclab.launch.doctor.request import make_request

Program = Callable[[str, str], None]

TWO_TASKS = """
echo "$*" > "$(dirname "$0")/line"
while [[ $1 == --* ]]; do shift; done
for k in 0 1; do
    SLURM_JOB_ID=7 SLURM_PROCID=$k SLURM_NODEID=$k SLURM_NTASKS=2 SLURM_JOB_NODELIST=localhost,127.0.0.2 "$@" &
done
wait"""
"""srun, with this machine as both nodes."""


def report(host: str, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "host": host,
        "versions": {"torch": "2.13.0", "nccl": "2.27"},
        "gpus": ["NVIDIA H100, 580, 81559 MiB"] * 2,
        "gpu_problem": "",
        "visible_gpus": "0,1",
        "address": "10.0.0.1",
        "interface": "ib0",
        "kernel_cache": {"level": "ok", "text": "", "action": ""},
        "clock": {"offset_s": 0.002, "round_trip_s": 0.0004},
        "all_reduce": {"bytes_per_s": 2e10, "backend": "nccl"},
    }
    return values | changes


def levels(*reports: dict[str, Any], gpus_per_node: int = 2) -> dict[str, tuple[str, str]]:
    return {one.check: (one.level, one.text) for one in judge(reports, gpus_per_node=gpus_per_node)}


def test_nodes_that_agree() -> None:
    found = levels(report("n1", clock=None), report("n2"))
    assert {level for level, _ in found.values()} == {"ok"}
    assert found["all-reduce"][1] == "64 MB over 2 nodes by nccl: 20.00 GB/s"
    assert found["clocks"][1] == "n2 is +0.002 s from n1; a round trip takes 0.4 ms"
    assert found["node addresses"][1] == "n1 10.0.0.1 on ib0, n2 10.0.0.1 on ib0"
    assert found["nodes' GPUs"][1] == "2 x NVIDIA H100, 580, 81559 MiB on every node"


@pytest.mark.parametrize(
    ("changes", "check", "level", "words"),
    [
        ({"versions": {"torch": "2.7.0", "nccl": "2.27"}}, "versions", "error", "torch: 2.13.0 on n1, 2.7.0 on n2"),
        ({"clock": {"offset_s": -2.5, "round_trip_s": 0.001}}, "clocks", "warning", "n2 is -2.500 s from n1"),
        ({"gpu_problem": "NVML: mismatch"}, "nodes' GPUs", "error", "n2: NVML: mismatch"),
        ({"visible_gpus": "0"}, "nodes' GPUs", "error", "n2: 2 asked for, 1 given"),
        ({"gpus": ["NVIDIA A100, 1, 2 MiB"] * 2}, "nodes' GPUs", "warning", "differ: n1: NVIDIA H100"),
        ({"failed": {"step": "clock and port", "error": "TimeoutError: x"}}, "clock and port", "error", "n2: Timeout"),
        ({"all_reduce": {"bytes_per_s": 1e8, "backend": "nccl"}}, "all-reduce", "warning", "0.10 GB/s"),
        ({"kernel_cache": {"level": "warning", "text": "nfs", "action": "x"}}, "kernel cache", "warning", "n2: nfs"),
    ],
)  # fmt: skip
def test_what_is_wrong_on_one_node_is_named(changes: dict[str, Any], check: str, level: str, words: str) -> None:
    found = [one for one in judge([report("n1"), report("n2", **changes)], gpus_per_node=2) if one.check == check]
    assert (found[0].level, words in found[0].text, bool(found[0].action)) == (level, True, True)


def test_a_node_that_ssh_does_not_reach_is_an_error() -> None:
    reports = [report("n1", ssh=["n2: no agent: denied. Make it work"])]
    (found,) = [one for one in judge(reports, gpus_per_node=2) if one.check == "agents"]
    assert (found.level, found.text, found.action) == ("error", "n2: no agent: denied", "Make it work")


def test_the_job_has_the_profiles_settings(cluster: Path) -> None:
    (cluster / "slurm" / "setup.sh").write_text("true\n")
    (cluster / "site.yaml").write_text(
        "partition: gpu\naccount: abc@h100\nqos: long\nconstraint: h100\ngres: gpu:4\ngpus_per_node: 4\n"
        "memory: 64G\ncommand_prefix: apptainer exec --nv image.sif\nextra: {hint: nomultithread, exclusive: true}\n"
    )
    request = make_request(profile="site.yaml", num_nodes=2, workers_per_node=None)
    line = srun_command(request, ["python", "a b"])
    assert set(line[1:-3]) == {
        *("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=32", "--mem=65536M", "--gres=gpu:4", "--partition=gpu"),
        *("--account=abc@h100", "--qos=long", "--constraint=h100", "--hint=nomultithread", "--exclusive"),
        *("--job-name=hpclab-doctor", "--time=5", "--export=ALL", "--kill-on-bad-exit=0"),
    }
    assert line[-3:] == [
        "bash",
        "-c",
        f"source {cluster}/slurm/setup.sh && exec apptainer exec --nv image.sif python 'a b'",
    ]


def test_slurms_refusal_is_an_error_in_its_own_words(cluster: Path, program: Program) -> None:
    program("srun", "echo 'srun: error: Unable to allocate resources: Invalid account' >&2; exit 1")
    request = make_request(profile=None, num_nodes=2, workers_per_node=1)
    (found,) = check_allocation(request, cluster / "runs")
    assert (found.level, found.text) == ("error", "Unable to allocate resources: Invalid account")


def test_nodes_that_do_not_see_the_folder(cluster: Path, program: Program) -> None:
    program("srun", "true")  # both ran, and left nothing here
    request = make_request(profile=None, num_nodes=2, workers_per_node=1)
    (found, *_) = check_allocation(request, cluster / "runs")
    assert found.level == "error"
    assert found.text.startswith("0 of 2 nodes have reported")


@pytest.mark.distributed
def test_two_tasks_meet_and_exchange(cluster: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    program("srun", TWO_TASKS)
    program("ssh", 'test "${@: -2:1}" = 127.0.0.2')
    (cluster / "slurm" / "profiles" / "default.yaml").write_text("agents: ssh\n")
    request = make_request(profile=None, num_nodes=2, workers_per_node=1)
    found = {one.check: one for one in check_allocation(request, cluster / "runs")}
    assert {one.level for one in found.values()} == {"ok"}, found
    assert found["nodes' job"].text == f"ran on localhost, 127.0.0.2, which see {cluster}"
    assert found["versions"].text == "equal on all nodes"
    assert found["agents"].text == "ssh gets from localhost to every other node"
    assert "64 MB over 2 nodes by gloo: " in found["all-reduce"].text
    assert abs(float(found["clocks"].text.split()[2])) < 1.0
    assert not list(cluster.glob(".hpclab-doctor-*"))


def test_a_job_that_would_be_refused_is_not_started(
    cluster: Path, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program("srun", f"touch {cluster}/started")
    with pytest.raises(SystemExit, match="1"):
        main(["doctor", "--nodes", "9"])
    assert "error   nodes' job      not started: the errors above would stop it" in capsys.readouterr().out
    assert not (cluster / "started").exists()


def test_a_job_that_waits_too_long_leaves_the_queue(
    cluster: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "_QUEUE_WAIT_S", 0.5)
    program("srun", f"trap 'touch {cluster}/left; exit 1' TERM; touch {cluster}/waits; while true; do sleep 0.1; done")
    request = make_request(profile=None, num_nodes=2, workers_per_node=1)
    (found,) = check_allocation(request, cluster / "runs")
    assert found.text == "no result after 0 min: the job still waited, or hung"
    assert (cluster / "left").exists()
