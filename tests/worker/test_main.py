"""One rank in this process: how it fails, stops, and that it trains."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from hpclab.checkpoint import folder as disk
from hpclab.config.load import dump_config, load_config
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.vec_env import Step
from hpclab.errors import ConfigError, LaunchError, WorkerError
from hpclab.metrics.jsonl import read_last
from hpclab.run_folder import RunFolder
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.runners.runs import attempt, small_config, write_config

CARTPOLE = Path(__file__).parents[2] / "configs" / "cartpole.yaml"


def at_iteration(number: int, action, monkeypatch) -> None:
    """Call `action` when iteration `number` collects."""
    original = OnPolicyRunner._collect

    def collect(runner: OnPolicyRunner) -> None:
        if runner.iteration == number:
            action()
        original(runner)

    monkeypatch.setattr(OnPolicyRunner, "_collect", collect)


def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(0)])
def test_what_is_unforeseen_becomes_a_worker_error(error: BaseException, tmp_path: Path, monkeypatch) -> None:
    run = write_config(tmp_path, small_config())
    at_iteration(2, lambda: raise_(error), monkeypatch)
    with pytest.raises(WorkerError, match=rf"at iteration 2: {type(error).__name__}.*rank-0000\.log") as raised:
        attempt(run)
    assert raised.value.__cause__ is error
    assert "Traceback" in run.rank_log(0, 0).read_text()
    assert run.rank_error(0, 0).exists()


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_a_failure_keeps_the_checkpoint_that_was_being_written(
    error: BaseException, tmp_path: Path, monkeypatch
) -> None:
    run = write_config(tmp_path, small_config(run={"save_interval": 2}))
    failed = threading.Event()
    original = disk.write_file

    def slow(path: Path, data: bytes) -> disk.FileEntry:
        failed.wait()
        return original(path, data)

    monkeypatch.setattr(disk, "write_file", slow)
    at_iteration(2, lambda: (failed.set(), raise_(error)), monkeypatch)
    with pytest.raises(type(error) if isinstance(error, KeyboardInterrupt) else WorkerError):
        attempt(run)
    assert disk.verify(run.checkpoints / "iter-000002").iteration == 2


def test_what_is_no_number_ends_the_run_before_it_is_saved(tmp_path: Path, monkeypatch) -> None:
    run = write_config(tmp_path, small_config(run={"save_interval": 1, "keep_last": 1}))
    original, steps = ManagerEnv.step, []

    def step(env: ManagerEnv, actions: torch.Tensor) -> Step:
        steps.append(original(env, actions))
        if len(steps) == 20:  # of 8 an iteration
            steps[-1].observations["critic"][0, 0] = float("nan")
        return steps[-1]

    monkeypatch.setattr(ManagerEnv, "step", step)
    with pytest.raises(WorkerError, match=r"Loss/value_loss of iteration 2 is nan: .*resume$"):
        attempt(run)
    assert disk.iterations(run.checkpoints) == [2]
    monkeypatch.undo()
    assert attempt(run, 1).kind == "completed"


def test_our_own_errors_stay_what_they_are(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config(env={"num_envs": 1, "num_envs_scope": "global"}))
    run.config.write_text(run.config.read_text().replace("cartpole-balance", "cartpole-jump"))
    with pytest.raises(ConfigError, match="cartpole-jump"):
        attempt(run)


def test_a_local_rank_without_a_device_is_named(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config())
    with pytest.raises(LaunchError, match="local rank 0 has no device"):
        run_worker(WorkerSpec(str(run.path), 0, (), console=False), WorkerContext.single())


def test_a_worker_outside_a_launcher_says_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LaunchError, match="RANK=None"):
        run_worker(WorkerSpec(str(tmp_path), 0, ("cpu",), console=False))


def test_the_first_ctrl_c_saves_and_stops(tmp_path: Path, monkeypatch) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 100_000}))
    at_iteration(2, lambda: os.kill(os.getpid(), signal.SIGINT), monkeypatch)
    outcome = attempt(run)
    assert outcome.kind == "stopped"
    assert disk.iterations(run.checkpoints) == [outcome.iteration]
    last = read_last(run.metrics / "metrics.jsonl")
    assert last is not None
    assert last["iteration"] == outcome.iteration - 1
    assert not run.rank_error(0, 0).exists()


def test_the_second_ctrl_c_ends_at_once(tmp_path: Path, monkeypatch) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    run = write_config(tmp_path, small_config(run={"max_iterations": 100_000}))
    at_iteration(2, twice, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        attempt(run)
    assert disk.iterations(run.checkpoints) == []


def test_a_stop_asked_for_before_the_start_is_heard(tmp_path: Path) -> None:
    run = write_config(tmp_path, small_config())
    run.logs(0).mkdir(parents=True)
    run.stop_file(0).touch()
    assert attempt(run).iteration == 1


def test_the_time_of_the_last_checkpoint_is_left_for_the_launcher(tmp_path: Path, monkeypatch) -> None:
    write = disk.write_file

    def slow(*arguments, **options):
        threading.Event().wait(0.1)
        return write(*arguments, **options)

    monkeypatch.setattr(disk, "write_file", slow)
    run = write_config(tmp_path, small_config(run={"max_iterations": 4, "save_interval": 4}))
    attempt(run)
    assert 0.1 <= json.loads(run.save_time.read_text())["save_s"] < 30


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_standard_output_and_logged(terminal: bool, tmp_path: Path, capsys) -> None:
    run = write_config(tmp_path, small_config(run={"max_iterations": 2}))
    run_worker(WorkerSpec(str(run.path), 0, ("cpu",), console=terminal), WorkerContext.single())
    shown = capsys.readouterr().out
    assert ("iteration 1/2" in shown) is terminal
    log = run.rank_log(0, 0).read_text()
    for line in ("rank 0 of 1", "device cpu, 8 environments, 1 simulation threads, seed 3", "sync.metrics", "1/2"):
        assert line in log


def test_the_shipped_cartpole_balances_after_half_of_its_iterations(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.config.write_text(dump_config(load_config(CARTPOLE, ["metrics.tensorboard=false", "run.max_iterations=100"])))
    attempt(run)
    last = read_last(run.metrics / "metrics.jsonl")
    assert last is not None
    assert last["Train/mean_reward"] >= 9.0, "90 % of the maximum return of 10"
