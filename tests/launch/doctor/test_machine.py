from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hpclab.config.schema import Agents
from hpclab.launch.doctor import software, storage
from hpclab.launch.doctor.agents import check_agents
from hpclab.launch.doctor.gpus import check_gpus
from hpclab.launch.doctor.lead_time import check_lead_time
from hpclab.launch.doctor.network_address import check_network
from hpclab.run_folder import RunFolder

Program = Callable[[str, str], None]


def test_packages_are_compared_with_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {one.level for one in software.check_software()} == {"ok"}
    versions = {"torch": "2.6.0", "mujoco": None}
    monkeypatch.setattr(software, "installed", lambda name: versions.get(name, "0.4.0"))
    found = {one.check: one for one in software.check_software()}
    assert found["torch"].text == "2.6.0, but hpclab needs >=2.7"
    assert found["mujoco"].text == "not installed"
    assert found["torchrunx"].level == "ok"
    assert "pip install 'mujoco" in found["mujoco"].action


@pytest.mark.parametrize(
    ("missing", "agents", "problem"),
    [
        ("srun", "tasks", "no srun here, to start one task a node"),
        ("srun", "local", ""),
        ("ssh", "ssh", "slurm.agents=ssh, but no ssh here"),
        ("ssh", "local", ""),
    ],
)
def test_agents_need_what_starts_them(
    monkeypatch: pytest.MonkeyPatch, missing: str, agents: Agents, problem: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else f"/usr/bin/{name}")
    (found,) = check_agents(agents)
    assert found.level == ("error" if problem else "ok")
    assert problem in found.text


def test_a_folder_that_works_is_left_as_it_was(tmp_path: Path) -> None:
    found = list(storage.check_folder(tmp_path / "runs"))
    assert found[0].level == "ok"
    assert "write, rename and lock work" in found[0].text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    (found,) = storage.check_folder(tmp_path / "runs" / "x")
    assert (found.level, found.check) == ("error", "run folder")


def test_a_file_system_without_links_cannot_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    found = next(storage.check_folder(tmp_path))
    assert found.level == "error"
    assert "Operation not permitted" in found.text


def test_a_full_disk_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((5e8, "error"), (5e9, "warning"), (5e11, "ok")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: _Usage(free))
        assert list(storage.check_folder(tmp_path))[1].level == level


class _Usage:
    def __init__(self, free: float) -> None:
        self.free = free


def test_the_deepest_mount_names_the_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    (tmp_path / "a b").mkdir()
    mounts.write_text(f"x / ext4 rw 0 0\ny {str(tmp_path / 'a b').replace(' ', chr(92) + '040')} nfs4 rw 0 0\n")
    assert storage.file_system(tmp_path / "a b", mounts) == "nfs4"
    assert storage.file_system(tmp_path, mounts) == "ext4"
    assert storage.file_system(tmp_path, tmp_path / "none") == "unknown"


def test_kernels_belong_on_local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage.check_kernel_cache({"WARP_CACHE_PATH": str(tmp_path)}).level == "ok"
    assert storage.check_kernel_cache({}, submits=True).text == "each node's own scratch, in a job"
    assert storage.kernel_cache({"HOME": "/home/x"}) == Path("/home/x/.cache/warp")
    monkeypatch.setattr(storage, "file_system", lambda _: "lustre")
    found = storage.check_kernel_cache({"WARP_CACHE_PATH": str(tmp_path)})
    assert (found.level, "WARP_CACHE_PATH" in found.action) == ("warning", True)


@pytest.mark.parametrize("own", [["127.0.1.1"], ["::1", "10.1.1.1"]])
def test_a_name_that_resolves_to_this_machine_only_is_no_trap(monkeypatch: pytest.MonkeyPatch, own: list[str]) -> None:
    def resolve(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        addresses = own if name == socket.gethostname() else [name]
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(kinds[":" in address], 0, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("hpclab.launch.network._source_towards", lambda *_: "10.9.8.7")
    monkeypatch.setattr("hpclab.launch.doctor.network_address.interface_of", lambda _: "ib0")
    found = list(check_network("head"))
    assert [(one.level, one.text) for one in found] == [
        ("ok", "10.9.8.7 on ib0"),
        ("ok", f"{socket.gethostname()} resolves to {', '.join(own)} first; hpclab uses 10.9.8.7 instead"),
    ]


@pytest.mark.parametrize(("controller", "level"), [(None, "ok"), ("head", "error")])
def test_only_a_loopback_address(monkeypatch: pytest.MonkeyPatch, controller: str | None, level: str) -> None:
    monkeypatch.setattr("hpclab.launch.doctor.network_address.reachable_address", lambda *_: "127.0.0.1")
    assert next(check_network(controller)).level == level


def test_gpus_and_their_driver(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    line = "NVIDIA H100, 580.65.06, 81559 MiB"
    program("nvidia-smi", f"echo '{line}'; echo '{line}'")
    first, torch = check_gpus()
    assert (first.level, first.text) == ("ok", f"2 x {line}")
    assert (torch.level, torch.check) == ("error", "torch on GPUs")  # it sees none of them
    program("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    (found,) = check_gpus()
    assert (found.level, "version mismatch" in found.text) == ("error", True)
    program("nvidia-smi", "true")
    (found,) = check_gpus()
    assert (found.level, found.text) == ("ok", "does not apply: nvidia-smi finds none here")


def saved(runs: Path, name: str, seconds: float) -> RunFolder:
    run = RunFolder(runs / name)
    run.metrics.mkdir(parents=True)
    line = {"iteration": 49, "time": 1000.0, "Perf/collection_time": 3.0, "Perf/learning_time": 1.0}
    (run.metrics / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    run.save_time.write_text(json.dumps({"save_s": seconds}))
    return run


@pytest.mark.parametrize(("seconds", "level"), [(40.0, "ok"), (50.0, "warning")])
def test_the_lead_time_covers_a_checkpoint(tmp_path: Path, seconds: float, level: str) -> None:
    os.utime(saved(tmp_path, "old", 500.0).save_time, (1.0, 1.0))
    saved(tmp_path, "sweep/g1-000", seconds)
    (found,) = check_lead_time(120, {"PreemptMode": "OFF"}, {}, tmp_path)
    assert found.level == level
    assert f"g1-000 needs up to {34 + 2 * seconds:.0f} s to stop (a checkpoint takes {seconds} s)" in found.text
    assert found.action == ("" if level == "ok" else "set slurm.signal_lead_s=140")


@pytest.mark.parametrize(("grace", "level"), [("30", "warning"), ("300", "ok")])
def test_the_grace_time_covers_a_checkpoint(tmp_path: Path, grace: str, level: str) -> None:
    saved(tmp_path, "g1", 40.0)
    partition = {"PreemptMode": "REQUEUE", "GraceTime": grace}
    _, found = check_lead_time(120, partition, {"PreemptType": "preempt/qos"}, tmp_path)
    assert (found.check, found.level) == ("grace time", level)


def test_without_a_checkpoint_nothing_is_known(tmp_path: Path) -> None:
    (found,) = check_lead_time(120, {}, {}, tmp_path)
    assert (found.level, "no checkpoint" in found.text) == ("ok", True)
