"""The command line: how it calls what it starts, and how every wrong request ends."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hpclab
from hpclab.cli import join_gpu_ids, main
from hpclab.config.yaml_file import parse_yaml
from hpclab.errors import CheckpointError, ConfigError, LaunchError, WorkerError

CONFIG = Path(__file__).parents[1] / "configs" / "g1.yaml"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of one command in this process."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert isinstance(end.value.code, int)
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


class Calls:
    """Stands in for a function of hpclab.launch and keeps its arguments."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __call__(self, *positional: Any, **named: Any) -> None:
        self.arguments = positional, named
        if self.error is not None:
            raise self.error


def stand_in(monkeypatch: pytest.MonkeyPatch, command: str, error: BaseException | None = None) -> Calls:
    calls = Calls(error)
    module = "doctor.command" if command == "doctor" else command
    monkeypatch.setattr(f"hpclab.launch.{module}.{command}", calls)
    return calls


TRAIN = {"gpu_ids": None, "num_workers": None, "torchrunx_log_dir": None}
DOCTOR = {"profile": None, "num_nodes": None, "workers_per_node": None, "as_json": False}
LOGS = {"rank": None, "attempt": None, "follow": False, "first_error": False}
SUBMIT = {
    "num_nodes": None,
    "gpus_per_node": None,
    "workers_per_node": None,
    "profile": None,
    "print_only": False,
    "local": False,
    "dry_run": False,
    "snapshot": True,
    "sweep": [],
}


@pytest.mark.parametrize(
    ("line", "positional", "named"),
    [
        ("train c.yaml", (Path("c.yaml"), []), TRAIN),
        ("train c.yaml a.b=1 seed=2", (Path("c.yaml"), ["a.b=1", "seed=2"]), TRAIN),
        ("train --gpu-ids 0 1 c.yaml a=1", (Path("c.yaml"), ["a=1"]), TRAIN | {"gpu_ids": ["0", "1"]}),
        ("train c.yaml --gpu-ids 0,1 a=1", (Path("c.yaml"), ["a=1"]), TRAIN | {"gpu_ids": ["0", "1"]}),
        ("train c.yaml --gpu-ids=0 a=1", (Path("c.yaml"), ["a=1"]), TRAIN | {"gpu_ids": ["0"]}),
        (
            "train c.yaml a=1 --gpu-ids 0 GPU-8f MIG-3",
            (Path("c.yaml"), ["a=1"]),
            TRAIN | {"gpu_ids": ["0", "GPU-8f", "MIG-3"]},
        ),
        ("train --gpu-ids all c.yaml", (Path("c.yaml"), []), TRAIN | {"gpu_ids": ["all"]}),
        ("train c.yaml --gpu-ids -1", (Path("c.yaml"), []), TRAIN | {"gpu_ids": ["-1"]}),
        (
            "train c.yaml --gpu-ids none --num-workers 2",
            (Path("c.yaml"), []),
            TRAIN | {"gpu_ids": ["none"], "num_workers": 2},
        ),
        ("train c.yaml --torchrunx-log-dir=", (Path("c.yaml"), []), TRAIN | {"torchrunx_log_dir": ""}),
        ("submit c.yaml", (Path("c.yaml"), []), SUBMIT),
        (
            "submit c.yaml --nodes 2 --gpus-per-node 8 --profile site a=1 --print",
            (Path("c.yaml"), ["a=1"]),
            SUBMIT | {"num_nodes": 2, "gpus_per_node": 8, "profile": "site", "print_only": True},
        ),
        (
            "submit c.yaml --nodes 2 --workers-per-node 3 --local --dry-run",
            (Path("c.yaml"), []),
            SUBMIT | {"num_nodes": 2, "workers_per_node": 3, "local": True, "dry_run": True},
        ),
        (
            "submit c.yaml b=1 --sweep a=1,2 seed=1..5 --nodes 2 c=2",
            (Path("c.yaml"), ["b=1", "c=2"]),
            SUBMIT | {"num_nodes": 2, "sweep": ["a=1,2", "seed=1..5"]},
        ),
        ("submit --sweep a=1,2 c.yaml", (Path("c.yaml"), []), SUBMIT | {"sweep": ["a=1,2"]}),
        ("submit c.yaml --sweep a=1 --sweep b=2", (Path("c.yaml"), []), SUBMIT | {"sweep": ["a=1", "b=2"]}),
        ("submit c.yaml --no-snapshot", (Path("c.yaml"), []), SUBMIT | {"snapshot": False}),
        ("resume runs/a a=1", (Path("runs/a"), ["a=1"]), {"num_nodes": None, "new_code": False}),
        ("resume runs/a --nodes 4 --new-code", (Path("runs/a"), []), {"num_nodes": 4, "new_code": True}),
        ("status", (None,), {"as_json": False, "watch": False}),
        ("status runs/a --json --watch", (Path("runs/a"),), {"as_json": True, "watch": True}),
        ("logs runs/a", (Path("runs/a"),), LOGS),
        ("logs runs/a --rank 1 --attempt 0 -f", (Path("runs/a"),), LOGS | {"rank": 1, "attempt": 0, "follow": True}),
        ("logs runs/a --first-error", (Path("runs/a"),), LOGS | {"first_error": True}),
        ("cancel runs/a", (Path("runs/a"),), {}),
        ("doctor", (), DOCTOR),
        (
            "doctor --profile site --nodes 2 --workers-per-node 3 --json",
            (),
            {"profile": "site", "num_nodes": 2, "workers_per_node": 3, "as_json": True},
        ),
    ],
)
def test_a_command_calls_its_function(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    positional: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    calls = stand_in(monkeypatch, line.split()[0])
    assert run(capsys, *line.split()) == (0, "", "")
    assert calls.arguments == (positional, named)


def test_gpu_ids_end_at_what_is_none() -> None:
    assert join_gpu_ids(["--gpu-ids", "0", "1", "a=1", "2"]) == ["--gpu-ids", "0,1", "a=1", "2"]
    assert join_gpu_ids(["c.yaml", "--gpu-ids"]) == ["c.yaml", "--gpu-ids"]
    assert join_gpu_ids(["--gpu-ids", "x", "0"]) == ["--gpu-ids", "x,0"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a.yaml:3: seed: bad\na.yaml:4: task: bad"), 2),
        (LaunchError("no"), 3),
        (WorkerError("no"), 4),
        (CheckpointError("no"), 5),
    ],
)
def test_our_errors_are_their_message_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    stand_in(monkeypatch, "cancel", error)
    assert run(capsys, "cancel", "runs/a") == (code, "", f"{error}\n")


def test_what_one_may_not_read_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch, "logs", PermissionError(errno.EACCES, "Permission denied", "/runs/a/logs"))
    message = "/runs/a/logs: Permission denied; ask for access to it, or name another\n"
    assert run(capsys, "logs", "runs/a") == (2, "", message)


@pytest.mark.parametrize("line", ["status", "tasks", f"train {CONFIG}", f"config show {CONFIG}"])
def test_a_working_folder_that_is_gone_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run(capsys, *line.split()) == (2, "", "the working folder is gone; change to one that is there\n")


def test_a_character_that_the_locale_lacks_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("task: cartpole-balance\nrun: {name: \u4e2d}\n", encoding="utf-8")
    command = [sys.executable, "-m", "hpclab", "config", "show", "a.yaml"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert b"name: \\u4e2d\n" in shown.stdout


def test_a_full_disk_is_one_line_and_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, problem = run(capsys, "train", str(CONFIG), f"run.root={tmp_path}", "run.name=a", "--gpu-ids", "none")
    assert (code, problem.count("\n")) == (3, 1)
    assert re.match(rf"{tmp_path}/a/\S+: cannot be written or read: No space left on device;", problem)


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch, "status", KeyboardInterrupt())
    assert run(capsys, "status")[0] == 130


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "status", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["status"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("submit c.yaml --nodes 0", "--nodes"),
        ("submit c.yaml --nodes two", "--nodes"),
        ("submit c.yaml --nodes 2 --workers-per-node 0", "--workers-per-node"),
        ("train", "CONFIG"),
        ("train c.yaml --num-workers -1", "--num-workers"),
        ("train c.yaml --gpu-ids", "--gpu-ids"),
        ("train c.yaml --gpu-idz 0", "--gpu-ids"),
        ("trian c.yaml", "'train'"),
        ("logs runs/a --rank -1", "--rank"),
        ("config sho c.yaml", "'show'"),
    ],
)
def test_a_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str], line: str, message: str) -> None:
    code, output, error = run(capsys, *line.split())
    assert (code, output) == (2, "")
    assert error.startswith("hpclab: ")
    assert message in error
    assert error.count("\n") == 1


# What a user may get wrong about a run, by the whole command in a folder where nothing may appear.
WRONG_REQUESTS = {
    "missing config": ("nowhere.yaml", "nowhere.yaml: no such file"),
    "a folder": ("folder", "folder: is a folder"),
    "not text": ("latin.yaml", "latin.yaml:1: is not UTF-8 text"),
    "empty": ("empty.yaml", "empty.yaml: is empty"),
    "not YAML": ("broken.yaml", "broken.yaml:2: not YAML"),
    "unknown task": ("good.yaml task=cartpole", "command line: task=cartpole: unknown task 'cartpole'"),
    "unknown key": ("good.yaml algorithm.clip_parm=1", "command line: algorithm.clip_parm=1: unknown key"),
    "wrong type": ("good.yaml seed=1.5", "command line: seed=1.5: must be an integer"),
    "out of range": ("good.yaml algorithm.gamma=2", "command line: algorithm.gamma=2: must be at most 1"),
    "too few environments": (
        "good.yaml env.num_envs=1 algorithm.num_mini_batches=30",
        "command line: env.num_envs=1: 1 gives 24 samples an iteration, fewer than algorithm.num_mini_batches=30",
    ),
    "no override": ("good.yaml seed", "command line: seed: is not an override"),
}


@pytest.mark.parametrize("command", ["train", "submit", "submit --print", "submit --dry-run", "config show"])
@pytest.mark.parametrize("request_name", WRONG_REQUESTS)
def test_a_wrong_request_is_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, request_name: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.yaml").write_text("task: cartpole-balance\n")
    (tmp_path / "empty.yaml").write_text("\n")
    (tmp_path / "broken.yaml").write_text("task: [\n")
    (tmp_path / "latin.yaml").write_bytes(b"task: caf\xe9\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments, message = WRONG_REQUESTS[request_name]

    code, output, error = run(capsys, *command.split(), *arguments.split())

    assert (code, output) == (2, "")
    assert error.startswith(message)
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("ids", ["all", "0", "0 1", "x", "0 0", "-1", "all 0"])
def test_a_gpu_that_does_not_exist_is_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ids: str
) -> None:
    (tmp_path / "good.yaml").write_text("task: cartpole-balance\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, output, error = run(capsys, "train", "good.yaml", "--gpu-ids", *ids.split())
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "--gpu-ids" in error
    assert [path.name for path in tmp_path.rglob("*")] == ["good.yaml"]


def test_config_show_prints_every_setting_with_sync_as_it_takes_effect(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, error = run(capsys, "config", "show", str(CONFIG), "env.num_envs=8")
    assert (code, error) == (0, "")
    shown = parse_yaml(output).values
    assert shown["env"]["num_envs"] == 8
    assert shown["sync"]["normalizer"] == "global"
    assert shown["algorithm"]["gamma"] == 0.99


def test_config_show_reads_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.yaml").write_text("partition: gpu\n")
    config = str(CONFIG)
    code, output, _ = run(capsys, "config", "show", config, "--profile", str(tmp_path / "site.yaml"))
    assert code == 0
    assert parse_yaml(output).values["slurm"]["partition"] == "gpu"


def test_config_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "config", "schema")
    assert code == 0
    assert "cartpole-balance" in json.loads(output)["properties"]["task"]["enum"]


def test_tasks_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "tasks")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == sorted(line.split()[0] for line in output.splitlines())
    assert "cartpole-balance " in output
    assert run(capsys, "--version") == (0, f"hpclab {hpclab.__version__}\n", "")


@pytest.mark.parametrize(
    "line", ["--help", "status", f"submit {CONFIG} --nodes 2 --print"], ids=lambda line: line.split()[0]
)
def test_a_login_node_is_answered_at_once(tmp_path: Path, line: str) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")  # a run, for `status`
    libraries = processor_time_s([sys.executable, "-c", "import pydantic, rich.table, submitit, typer, yaml"], tmp_path)
    answer = processor_time_s([sys.executable, "-m", "hpclab", *line.split()], tmp_path)
    # 0.6 s where the libraries take 0.2 s; a slow or busy machine slows both alike
    assert answer < 3.0 * libraries


def processor_time_s(command: list[str], folder: Path) -> float:
    """Return the least processor time of three calls [s]."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)
