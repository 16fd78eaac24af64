from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.launch.doctor.cluster import check_cluster
from hpclab.launch.doctor.partition import check_partition
from hpclab.launch.doctor.request import make_request
from hpclab.launch.doctor.slurm_words import (
    NodeSize,
    count_gpus,
    minutes,
    number,
    read_config,
    read_nodes,
    read_partitions,
)


@pytest.mark.parametrize(
    ("change", "partition", "check", "level", "words"),
    [
        ({"SLURM_VERSION": "19.05.1"}, {}, "slurm", "warning", "older than any"),
        ({"PreemptType": "preempt/none"}, {}, "preemption", "ok", "not preempted here"),
        ({}, {"PreemptMode": "OFF"}, "preemption", "ok", "in this partition are not preempted"),
        ({}, {"PreemptMode": "CANCEL"}, "preemption", "warning", "cancelled, not requeued"),
        ({"PreemptMode": "GANG,SUSPEND"}, {}, "preemption", "warning", "stopped in place"),
        ({"ProctrackType": "proctrack/pgid"}, {}, "ProctrackType", "warning", "may lose processes"),
        ({"ProctrackType": "proctrack/linuxproc"}, {}, "ProctrackType", "ok", "linuxproc"),
        ({"KillWait": "5 sec"}, {}, "KillWait", "warning", "5 s from the end"),
        ({"JobRequeue": "0"}, {}, "JobRequeue", "ok", "ask for --requeue themselves"),
        ({"AccountingStorageType": "accounting_storage/slurmdbd"}, {}, "accounting", "ok", "slurmdbd"),
    ],
)
def test_settings(
    cluster: Path, change: dict[str, str], partition: dict[str, str], check: str, level: str, words: str
) -> None:
    config = read_config()
    assert config is not None
    (found,) = [one for one in check_cluster(config | change, partition) if one.check == check]
    assert (found.level, words in found.text, bool(found.action)) == (level, True, level != "ok")


def test_what_slurm_prints_is_read(cluster: Path) -> None:
    assert (read_config() or {})["SlurmctldHost[0]"] == "head(127.0.0.1)"
    assert read_partitions()["high"]["AllowAccounts"] == "abc,def"
    assert read_nodes("low")[0] == NodeSize("n1", 16, 64000, 4, "idle")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0),
        ("gpu:4", 4),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:a:2,gpu:b:2", 4),
        ("gpu", 1),
        ("gpu,craynetwork:4", 1),
    ],
)
def test_gpus_of_gres(gres: str, gpus: int) -> None:
    assert count_gpus(gres) == gpus


def test_limits_without_a_limit() -> None:
    assert (minutes("1-00:00:00"), minutes("UNLIMITED"), minutes("NONE")) == (1440, None, None)
    assert (number("30 sec"), number("UNLIMITED")) == (30, None)


@pytest.mark.parametrize(
    ("profile", "nodes", "check", "level", "words"),
    [
        ("partition: high\n", 1, "partition", "error", "high is DOWN"),
        ("partition: high\naccount: xyz\n", 1, "access", "error", "high does not take slurm.account=xyz"),
        ("time: 2-00:00:00\n", 1, "walltime", "error", "slurm.time=2880 min, but low allows 1440"),
        ("time: 60\n", 1, "walltime", "ok", "60 min of 1440"),
        ("time: 60\n", 3, "nodes", "error", "3 asked for, but low allows 2"),
        ("gpus_per_node: 8\n", 1, "node size", "error", "0 of the nodes have that much of GPUs, 1 are needed"),
        ("gres: gpu:a100:8\n", 1, "node size", "error", "much of GPUs"),
        ("cpus_per_worker: 64\n", 1, "node size", "error", "much of cores"),
        ("memory: 1T\n", 1, "node size", "error", "much of memory"),
        (
            "gpus_per_node: 4\ncpus_per_worker: 4\nmemory: 60G\n",
            2,
            "node size",
            "ok",
            "16 cores, 61440 MB, 4 GPUs a node",
        ),
    ],
)
def test_a_request_against_the_partition(
    cluster: Path, profile: str, nodes: int, check: str, level: str, words: str
) -> None:
    (cluster / "site.yaml").write_text(profile)
    request = make_request(profile="site.yaml", num_nodes=nodes, workers_per_node=None)
    (found,) = [one for one in check_partition(request, read_partitions(), read_nodes("low")) if one.check == check]
    assert found.level == level
    assert words in found.text
    assert bool(found.action) == (level != "ok")


def test_nodes_that_are_down_make_it_wait(cluster: Path) -> None:
    request = make_request(profile=None, num_nodes=2, workers_per_node=1)
    nodes = [NodeSize("n1", 8, 1, 0, "idle"), NodeSize("n2", 8, 1, 0, "down*")]
    (found,) = [one for one in check_partition(request, read_partitions(), nodes) if one.check == "nodes"]
    assert (found.level, found.text) == ("warning", "2 asked for, but only 1 of 2 are up now")
