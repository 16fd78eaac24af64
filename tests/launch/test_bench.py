"""`hpclab bench tune`: it measures sizes, finds the fastest, and sizes buffers by what they had to hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hpclab.cli import main
from hpclab.errors import ConfigError
from hpclab.launch import bench
from hpclab.worker.tuning import Measured

CONFIG = Path(__file__).parents[2] / "configs" / "cartpole.yaml"
SMALL = ["actor.hidden_dims=[8]", "critic.hidden_dims=[8]", "algorithm.num_steps_per_env=4", "env.threads=1"]


def test_sizes_are_measured_and_one_that_cannot_be_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--num-envs", "4,12", "--iterations", "1", "--gpu-ids", "none"]
    with pytest.raises(SystemExit) as end:
        main(["bench", "tune", str(CONFIG), *sizes, *SMALL, "algorithm.num_mini_batches=20"])
    output = capsys.readouterr().out
    assert end.value.code == 0
    assert "4 environments: " in output
    assert "num_mini_batches=20" in output
    assert "env:\n  num_envs: 12\n" in output
    assert "njmax" not in output


@contextmanager
def tuning(sizes: str, iterations: int, until: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process of its own, and yield it when it prints the line `until`."""
    command = [sys.executable, "-m", "hpclab", "bench", "tune", str(CONFIG), "--num-envs", sizes, "--gpu-ids", "none"]
    command += ["--iterations", str(iterations), *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert f"{until}\n" in iter(process.stdout.readline, "")
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_the_measurement_and_shows_what_there_is() -> None:
    with tuning("4,8", 1, "measuring 8 environments") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60.0)
    assert process.returncode == 130
    assert "env:\n  num_envs: 4\n" in output
    assert not psutil.wait_procs(children, timeout=60.0)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel ends a process with its parent")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_end_of_the_command_leaves_a_measurement_behind(number: signal.Signals) -> None:
    with tuning("8", 10_000_000, "measuring 8 environments") as process:
        parent = psutil.Process(process.pid)
        children: list[psutil.Process] = []
        while not any("spawn_main" in " ".join(child.cmdline()) for child in children):
            children = parent.children(recursive=True)
        os.kill(process.pid, number)
        left = psutil.wait_procs(children, timeout=60.0)[1]
        for child in left:
            child.kill()
        assert not left


def test_a_list_of_no_numbers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "tune", str(CONFIG), "--num-envs", "many"])
    assert end.value.code == ConfigError("").exit_code
    assert "--num-envs many" in capsys.readouterr().err


def of_size(num_envs: int, steps_per_s: float, **more: object) -> Measured:
    return Measured(num_envs, steps_per_s, 0.1, 0.1, **more)  # type: ignore[arg-type]


def test_sizes_double_until_that_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {16: 100.0, 32: 190.0, 64: 250.0, 128: 255.0, 256: 400.0}
    asked = []

    def fake(config: object, device: str, iterations: int) -> Measured:
        num_envs = config.env.num_envs  # type: ignore[attr-defined]
        asked.append(num_envs)
        return of_size(num_envs, speeds[num_envs])

    monkeypatch.setattr(bench, "_measure_apart", fake)
    bench.tune(CONFIG, [], num_envs=None, iterations=1, gpu_ids=["none"])
    assert asked == [16, 32, 64, 128]


def test_the_lines_to_paste_hold_the_best_size_and_buffers_with_a_margin() -> None:
    small = of_size(2048, 96.0, peaks={"njmax": 150, "nconmax": 20}, warnings={"constraint_overflow": 3.0})
    best = of_size(4096, 100.0, peaks={"njmax": 130, "nconmax": 18})
    lines = bench.advice([small, best], best).splitlines()
    assert lines[:4] == ["env:", "  num_envs: 4096", "  njmax: 192", "  nconmax: 32"]
    assert any("num_envs 2048" in line for line in lines[4:])
    assert any("constraint_overflow" in line for line in lines[4:])
    assert not any("nconmax" in line for line in bench.advice([of_size(8, 1.0)], of_size(8, 1.0)).splitlines())
