"""Training runs in processes of their own, as users start them, and the figures that they leave behind."""

from __future__ import annotations

import contextlib
import itertools
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hpclab.metrics import record as tags
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "g1.yaml"
PEER_TASK = "Mjlab-Velocity-Flat-Unitree-G1"
_TICK_S = 2.0
_GRACE_S = 60.0


class RunError(Exception):
    """A run in a process of its own ended badly."""


def run_limited(
    command: Sequence[str], log: Path, *, limit_s: float, on_tick: Callable[[int], None] = lambda pid: None
) -> bool:
    """Run a command, and interrupt it as Ctrl-C does when its time is over; return whether it was.

    Args:
        command: program and arguments.
        log: takes what it prints.
        limit_s: how long it may run [s].
        on_tick: called every two seconds with its process id.

    Raises:
        RunError: it failed by itself, or did not end a minute after the interrupt.
    """
    deadline = time.monotonic() + limit_s
    interrupted = False
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(_TICK_S, max(0.01, deadline - time.monotonic())))
                    break
                on_tick(process.pid)
                if time.monotonic() < deadline:
                    continue
                if interrupted:
                    raise RunError(f"{' '.join(command)}: did not end {_GRACE_S:g} s after an interrupt; see {log}")
                interrupted, deadline = True, time.monotonic() + _GRACE_S
                process.send_signal(signal.SIGINT)
        finally:
            if process.poll() is None:  # a second interrupt ends its workers at once
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10.0)
                process.kill()
    if process.returncode and not interrupted:
        tail = log.read_text(errors="replace")[-3000:]
        raise RunError(f"{' '.join(command)}\nended with {process.returncode}:\n{tail}")
    return interrupted


def train(
    folder: Path,
    name: str,
    overrides: Sequence[str],
    *,
    devices: Sequence[str],
    limit_s: float,
    config: Path = CONFIG,
    on_tick: Callable[[int, RunFolder], None] = lambda pid, run: None,
) -> RunFolder:
    """Train a run `name` in `folder` with `hpclab train`.

    Raises:
        RunError: it failed.
    """
    run = RunFolder(folder / name)
    command = [sys.executable, "-m", "hpclab", "train", str(config)]
    command += [f"run.root={folder}", f"run.name={name}", *overrides, *devices]
    run_limited(command, folder / f"{name}.log", limit_s=limit_s, on_tick=lambda pid: on_tick(pid, run))
    return run


def read_training(run: RunFolder) -> dict[str, Any]:
    """Return the medians of a run's second half; the time of an iteration is from record to record.

    Raises:
        RunError: it has fewer than four iterations.
    """
    curve = read_curve(run.metrics / "metrics.jsonl")
    points = [(line["time"], line["env_steps"], line[tags.COLLECTION_TIME], line[tags.LEARNING_TIME]) for line in curve]
    half = curve[len(curve) // 2 :]
    return _medians(points) | {
        "wait_s": round(statistics.median(line.get(tags.WAIT_MEDIAN, 0.0) for line in half), 4),
        "simulation_warnings": sum(line[tags.WARNINGS] for line in half),
    }


def read_learning(run: RunFolder, every: int = 10) -> dict[str, Any]:
    """Return how well a run learned: the means of its last tenth, and its curve [iteration, reward, length]."""
    curve = read_curve(run.metrics / "metrics.jsonl")
    columns = (tags.MEAN_REWARD, tags.MEAN_EPISODE_LENGTH)
    known = [line for line in curve if all(line.get(tag) is not None for tag in columns)]
    last = known[-max(1, len(curve) // 10) :]
    means = {tag: round(statistics.mean(line[tag] for line in last), 3) for tag in columns if last}
    return {
        "last_tenth": means,
        "curve": [[line["iteration"], *(round(line[tag], 3) for tag in columns)] for line in known[::every]],
    }


def train_peer(python: str, folder: Path, num_envs: int, num_gpus: int, iterations: int, limit_s: float) -> Path:
    """Train the same task with the mjlab of another Python environment, its TensorBoard logging on.

    Returns:
        The folder with its event files.

    Raises:
        RunError: it failed.
    """
    logs = folder / f"peer-{num_envs}x{num_gpus}"
    command = [python, "-m", "mjlab.scripts.train", PEER_TASK, "--log-root", str(logs), "--agent.logger", "tensorboard"]
    command += ["--env.scene.num-envs", str(num_envs), "--agent.max-iterations", str(iterations)]
    command += ["--gpu-ids", str(list(range(num_gpus)) or None)]  # one value: its parser takes [0, 1], not 0 1
    run_limited(command, folder / f"{logs.name}.log", limit_s=limit_s)
    return logs


def read_peer(logs: Path, num_envs: int, num_gpus: int, num_steps: int = 24) -> dict[str, Any]:
    """Return the medians of the second half of an mjlab training, from its event files.

    Raises:
        RunError: there are no event files, or fewer than four iterations.
    """
    found = sorted(logs.rglob("events.out.tfevents.*"))
    if not found:
        raise RunError(f"{logs}: the peer wrote no TensorBoard events")
    events = EventAccumulator(str(found[-1]), size_guidance={"scalars": 0})
    events.Reload()
    collect, learn = (events.Scalars(f"Perf/{name}_time") for name in ("collection", "learning"))
    steps = num_envs * max(1, num_gpus) * num_steps
    return _medians(
        [(c.wall_time, steps * (i + 1), c.value, u.value) for i, (c, u) in enumerate(zip(collect, learn, strict=True))]
    )


def _medians(points: Sequence[tuple[float, int, float, float]]) -> dict[str, Any]:
    """Return medians over the second half of iterations: (end [s], steps so far, collect [s], learn [s])."""
    if len(points) < 4:
        raise RunError(f"{len(points)} iterations are too few to measure; give it more iterations or time")
    half = points[len(points) // 2 :]
    wall = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(half)]
    collect, learn = (statistics.median(point[index] for point in half) for index in (2, 3))
    return {
        "iterations": len(points),
        "train_steps_per_s": round(statistics.median(steps / seconds for seconds, steps in wall)),
        "collect_s": round(collect, 4),
        "learn_s": round(learn, 4),
        "other_s": round(statistics.median(seconds for seconds, _ in wall) - collect - learn, 4),
    }
