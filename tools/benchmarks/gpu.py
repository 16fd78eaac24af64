#!/usr/bin/env python3
"""Measure G1 training on this machine's NVIDIA GPUs against bare mujoco-warp physics; print JSON and a table.

    .venv/bin/python tools/benchmarks/gpu.py [--num-envs 4096 16384] [--gpus 1 2] [--iterations 40] [--output FILE]

Training is `hpclab train configs/g1.yaml` with its logging, once for every number of environments and of GPUs, and its
figures are medians over the second half of the iterations. Then the physics alone, and the policy alone, are timed with
device events in CUDA graphs, on the states in which the training with one GPU ended.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from hpclab.algorithms.ppo import PPO
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import load_config
from hpclab.distributed.collectives import Collectives
from hpclab.envs.make import make_env
from hpclab.metrics import record as tags
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder
from hpclab.runners.capture import Captured

_CONFIG = Path(__file__).parents[2] / "configs" / "g1.yaml"
_REPEATS = 10
_PACKAGES = ("hpclab", "mujoco", "mujoco-warp", "warp-lang", "torch")


def train(folder: Path, num_envs: int, num_gpus: int, iterations: int, overrides: list[str]) -> RunFolder:
    """Train in processes of their own, as a user does."""
    name = f"g1-{num_envs}x{num_gpus}"
    command = [sys.executable, "-m", "hpclab", "train", str(_CONFIG)]
    command += [f"run.root={folder}", f"run.name={name}", f"run.max_iterations={iterations}"]
    command += [f"env.num_envs={num_envs}", *overrides, "--gpu-ids", *map(str, range(num_gpus))]
    with (folder / f"{name}.log").open("wb") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{(folder / f'{name}.log').read_text()[-3000:]}")
    return RunFolder(folder / name)


def read_training(run: RunFolder, num_gpus: int) -> dict[str, Any]:
    """Return the medians of a training's second half; the time of an iteration is from record to record."""
    curve = read_curve(run.metrics / "metrics.jsonl")
    half = curve[len(curve) // 2 :]
    wall = [(b["time"] - a["time"], b["env_steps"] - a["env_steps"]) for a, b in itertools.pairwise(half)]
    collect, learn = (
        statistics.median(line[tag] for line in half) for tag in (tags.COLLECTION_TIME, tags.LEARNING_TIME)
    )
    return {
        "num_gpus": num_gpus,
        "train_steps_per_s": round(statistics.median(steps / seconds for seconds, steps in wall)),
        "collect_s": round(collect, 4),
        "learn_s": round(learn, 4),
        "other_s": round(statistics.median(seconds for seconds, _ in wall) - collect - learn, 4),
        "simulation_warnings": sum(line[tags.WARNINGS] for line in half),
    }


def measure_parts(run: RunFolder, num_envs: int) -> dict[str, float]:
    """Time the physics and the policy of control steps alone, from the states of the run's last checkpoint."""
    device = torch.device("cuda", 0)
    torch.set_float32_matmul_precision("high")  # as in training
    config = load_config(run.config)
    env = make_env(config, num_envs=num_envs, device=device, threads=1)
    ppo = PPO(
        config, observation_dims=env.observation_dims, num_actions=env.num_actions, num_envs=num_envs, device=device
    )
    checkpoint = CheckpointStore(run.checkpoints, Collectives(), config_sha256="").load_newest(num_envs)
    if checkpoint is None or checkpoint.shard is None:
        sys.exit(f"{run.path}: its last checkpoint does not hold {num_envs} environments")
    env.load_state_dict(checkpoint.shard["environment"])
    ppo.load_state_dict(checkpoint.shared["algorithm"])
    steps = config.algorithm.num_steps_per_env
    state = env.sim.state_dict()

    def physics() -> None:
        for _ in range(steps):
            env.sim.step()

    def policy() -> None:
        ppo.start_rollout()
        for _ in range(steps):
            ppo.act(env.observe())
            ppo.storage.step += 1

    physics_s = _time(physics, device, env.capturing, before=lambda: env.sim.load_state_dict(state))
    policy_s = _time(policy, device, nullcontext, before=lambda: None)
    env.close()
    samples = num_envs * steps
    return {
        "physics_s": round(physics_s, 4),
        "physics_steps_per_s": round(samples / physics_s),
        "policy_s": round(policy_s, 4),
        "peak_memory_gib": round(torch.cuda.max_memory_reserved(device) / 2**30, 2),
    }


def _time(
    work: Callable[[], None],
    device: torch.device,
    guard: Callable[[], AbstractContextManager[None]],
    *,
    before: Callable[[], None],
) -> float:
    """Return the median time of `work` in a CUDA graph [s], `before` it something that does not count."""
    captured = Captured(work, name="the benchmark", device=device, enabled=True, guard=guard)
    times = []
    for repeat in range(3 + _REPEATS):  # the first calls run plainly and capture
        before()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        captured()
        end.record()
        end.synchronize()
        if repeat >= 3:
            times.append(begin.elapsed_time(end) / 1000.0)
    return statistics.median(times)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[4096, 16384], help="environments of each GPU")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1], help="numbers of GPUs, one run each")
    parser.add_argument("--iterations", type=int, default=40, help="iterations of each run")
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    parser.add_argument("overrides", nargs="*", help="key.sub=value for every run")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU: this benchmark needs one that torch can use")
    results = []
    with tempfile.TemporaryDirectory() as name:
        for num_envs in options.num_envs:
            alone: dict[str, Any] = {}
            for num_gpus in sorted(options.gpus):
                run = train(Path(name), num_envs, num_gpus, options.iterations, options.overrides)
                result = {"num_envs": num_envs} | read_training(run, num_gpus)
                if num_gpus == 1:
                    result |= measure_parts(run, num_envs)
                    result["train_to_physics"] = round(result["train_steps_per_s"] / result["physics_steps_per_s"], 3)
                    alone = result
                elif alone:
                    ratio = result["train_steps_per_s"] / (num_gpus * alone["train_steps_per_s"])
                    result["weak_scaling"] = round(ratio, 4)
                results.append(result)
    report = {
        "machine": {"gpu": torch.cuda.get_device_name(0), "gpus": torch.cuda.device_count(), "cpus": os.cpu_count()},
        "system": platform.platform(),
        "versions": {package: _version(package) for package in _PACKAGES},
        "date": time.strftime("%Y-%m-%d"),
        "results": results,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    _show(results)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _show(results: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for result in results for key in result))
    table = Table(*columns)
    for result in results:
        table.add_row(*(str(result.get(key, "")) for key in columns))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
