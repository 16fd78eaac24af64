"""What users of other launchers have reported to go wrong, and must not here."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from hpclab.errors import ConfigError, LaunchError
from hpclab.launch import environment, jobs
from hpclab.launch.devices import node_gpus, resolve
from hpclab.run_folder import RunFolder
from hpclab.worker.main import _select_device
from tests.launch.commands import finish, hpclab, iterations, processes_of
from tests.launch.conftest import TINY

AWKWARD = 'a folder, 50% "of" it\'s'


def test_a_local_rank_without_a_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(LaunchError, match="local rank 3 has no device among 0"):
        _select_device(("0",), 3)
    with pytest.raises(ConfigError, match="4 workers need 4 GPUs, but CUDA_VISIBLE_DEVICES='0'"):
        node_gpus(4, {"CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.parametrize("device", ["3", "GPU-8932f937", "MIG-a"])
def test_a_rank_sees_its_own_device_alone(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert not _select_device(("2", device), 1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == device


def test_the_first_gpu_is_the_first_visible_one(program, monkeypatch: pytest.MonkeyPatch) -> None:
    program("nvidia-smi", "for i in 0 1 2 3; do echo GPU $i: X; done")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert resolve(None, None) == ("2",)
    assert resolve(["0", "1"], None) == ("2", "3")


def test_threads_follow_the_cores_one_may_use_not_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 93})
    variables: dict[str, str] = {}
    environment.share_cores(variables, 1)
    assert variables["OMP_NUM_THREADS"] == "2"
    variables = {}
    environment.share_cores(variables, 4)
    assert variables["OMP_NUM_THREADS"] == "1"


@pytest.mark.distributed
@pytest.mark.parametrize("launch", [("train", "--num-workers", 2), ("submit", "--local", "--workers-per-node", 1)])
def test_any_name_and_any_path_in_the_c_locale(launch: tuple[object, ...], tmp_path: Path) -> None:
    folder = tmp_path / AWKWARD
    folder.mkdir()
    config = folder / "tiny.yaml"
    config.write_text(TINY.format(root="runs").replace("max_iterations: 4", "max_iterations: 2"))
    command, *options = launch
    root = f"run.root={folder / 'runs'}"
    variables = {"LANG": "C", "LC_ALL": "C"}
    with hpclab(command, config, root, "run.name=dédé", *options, **variables) as process:
        code, output = finish(process)
    assert code == 0, output
    run = RunFolder(folder / "runs" / "dédé")
    assert iterations(run) == [0, 1]
    assert [attempt.cause for attempt in jobs.read(run)] == ["completed"]
    with hpclab("status", run.path, **variables) as process:
        code, output = finish(process)
    assert code == 0, output


@pytest.mark.distributed
def test_two_jobs_on_one_host_do_not_meet(tiny: Path, tmp_path: Path) -> None:
    taken = socket.socket()  # what torch uses when nobody chooses a port
    with suppress(OSError):  # somebody else has it: as good
        taken.bind(("", 29500))
    arguments = ("submit", tiny, "--local", "--nodes", 2, "--workers-per-node", 1)
    with (
        taken,
        hpclab(*arguments, "run.name=one", MASTER_PORT="29500") as one,
        hpclab(*arguments, "run.name=other", MASTER_PORT="29500") as other,
    ):
        for process in (one, other):
            code, output = finish(process)
            assert code == 0, output
    for name in ("one", "other"):
        run = RunFolder(tmp_path / "runs" / name)
        assert iterations(run) == [0, 1, 2, 3]
        assert processes_of(run.path) == []


@pytest.mark.parametrize("blocked", ["submitit", "logs", "metrics", "checkpoints"])
def test_a_folder_that_cannot_be_made_fails_before_the_start(blocked: str, tiny: Path, run: RunFolder) -> None:
    (run.path / blocked).write_text("not a folder")
    with hpclab("submit", tiny, "--local", "--nodes", 1, "--workers-per-node", 1) as process:
        code, output = finish(process)
    assert code == 2, output
    assert str(run.path / blocked) in output
    assert jobs.read(run) == []
