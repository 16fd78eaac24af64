from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.cli import main

Program = Callable[[str, str], None]


def doctor(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *options])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out + captured.err


def test_a_laptop_without_slurm_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, text = doctor(capsys)
    assert code == 0
    assert "ok      slurm           does not apply: no Slurm commands here" in text
    assert "ok      GPUs            does not apply: no nvidia-smi here" in text
    assert text.splitlines()[-1].endswith("0 warnings, 0 errors")
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    code, text = doctor(capsys, "--nodes", "2")
    assert code == 1
    assert "error   nodes' job      no srun here, which starts the check on every node\n" in text
    assert "hpclab submit CONFIG --nodes 2 slurm.agents=ssh run.max_iterations=2\n" in text


def test_a_cluster_that_fits(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = doctor(capsys)
    assert code == 0, text
    for line in (
        "ok      slurm           23.11.4",
        "ok      preemption      preempt/partition_prio, PreemptMode=REQUEUE: a preempted run saves, and goes on",
        "ok      ProctrackType   proctrack/cgroup",
        "ok      KillWait        30 s",
        "ok      MaxArraySize    1001: job arrays of up to 1001 members",
        "ok      accounting      none; hpclab status does without",
        "ok      partition       low",
        "ok      walltime        1440 min of 1440",
        "ok      nodes           1 of 3, 2 up",
        "ok      node size       16 cores, 2 GPUs a node; 2 nodes have it",
        "ok      agents          torchrunx 0.4.0 inside srun's tasks",
        "ok      lead time       120 s before the walltime's end; no checkpoint",
    ):
        assert line in text


def test_json_has_the_same_findings(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "site.yaml").write_text("partition: nowhere\n")
    code, text = doctor(capsys, "--json", "--profile", "site.yaml")
    assert code == 1
    report = json.loads(text)
    errors = [one for one in report["findings"] if one["level"] == "error"]
    assert [(one["check"], one["text"], one["action"]) for one in errors] == [
        ("partition", "no partition nowhere", "set slurm.partition to one of: low, high")
    ]
    assert report["counts"]["error"] == 1


def test_a_controller_that_is_down_is_an_error(
    cluster: Path, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    code, text = doctor(capsys)
    assert code == 1
    assert "error   slurm           the controller does not answer\n" in text
    assert "-> try scontrol ping" in text


def test_a_wrong_profile_is_a_wrong_request(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(capsys, "--profile", "nowhere")[0] == 2
