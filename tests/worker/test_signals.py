"""A notice at any moment of a rank's life ends in a saved run, or in a complete one."""

import os
import signal
from pathlib import Path

import pytest

from hpclab.checkpoint import folder as disk
from hpclab.run_folder import RunFolder
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.worker import main
from tests.runners.runs import attempt, curve, small_config, write_config

ITERATIONS = 6


def notify() -> None:
    os.kill(os.getpid(), signal.SIGUSR2)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_config(tmp_path, small_config(run={"max_iterations": ITERATIONS, "save_interval": 2}))


def finish(run: RunFolder, monkeypatch) -> None:
    """Go on after the stop: every iteration is done once."""
    monkeypatch.undo()
    assert attempt(run, 1).kind == "completed"
    assert [line["iteration"] for line in curve(run)] == list(range(ITERATIONS))
    assert disk.iterations(run.checkpoints)[0] == ITERATIONS


def test_before_torch_is_imported(run: RunFolder, monkeypatch) -> None:
    select = main._select_device

    def notified(*arguments):
        notify()
        return select(*arguments)

    monkeypatch.setattr(main, "_select_device", notified)
    assert (attempt(run).kind, disk.iterations(run.checkpoints)) == ("stopped", [1])
    finish(run, monkeypatch)


@pytest.mark.parametrize("iteration", [0, 3])
@pytest.mark.parametrize("part", ["_collect", "_read_numbers"])
def test_in_an_iteration(part: str, iteration: int, run: RunFolder, monkeypatch) -> None:
    original = getattr(OnPolicyRunner, part)

    def notified(runner: OnPolicyRunner, *arguments):
        if runner.iteration == iteration:
            notify()
        return original(runner, *arguments)

    monkeypatch.setattr(OnPolicyRunner, part, notified)
    outcome = attempt(run)
    assert outcome.kind == "stopped"
    assert outcome.iteration in (iteration + 1, iteration + 2), "the request may come just after it was asked for"
    assert disk.iterations(run.checkpoints)[0] == outcome.iteration
    finish(run, monkeypatch)


def test_during_a_checkpoints_write(run: RunFolder, monkeypatch) -> None:
    write = disk.write_file

    def notified(path, data):
        monkeypatch.setattr(disk, "write_file", write)
        notify()
        return write(path, data)

    monkeypatch.setattr(disk, "write_file", notified)
    outcome = attempt(run)
    assert outcome.kind == "stopped"
    assert outcome.iteration in (3, 4)
    finish(run, monkeypatch)


def test_after_the_last_iteration_the_run_is_complete(run: RunFolder, monkeypatch) -> None:
    save = OnPolicyRunner.save

    def notified(runner: OnPolicyRunner) -> None:
        notify()
        save(runner)

    monkeypatch.setattr(OnPolicyRunner, "save", notified)
    assert attempt(run).kind == "completed"
    assert disk.iterations(run.checkpoints)[0] == ITERATIONS


def test_a_complete_run_that_comes_back_repeats_nothing(run: RunFolder) -> None:
    assert attempt(run).kind == "completed"
    before = curve(run)
    for number in (1, 2, 3):
        assert attempt(run, number).iteration == ITERATIONS
    assert curve(run) == before
