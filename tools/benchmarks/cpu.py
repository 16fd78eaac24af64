#!/usr/bin/env python3
"""Measure G1 training on this machine's CPU cores against bare MuJoCo physics, in one run; print JSON.

    .venv/bin/python tools/benchmarks/cpu.py [--num-envs 64 256] [--iterations 8] [--output FILE]

Each iteration trains as `hpclab train` does on one rank: 24 control steps of every environment, then 5 x 4
mini-batches. Its physics is then repeated on a bare `mujoco.batch.Batch`, from the same states and with the same
actuator inputs, so that the machine's drift and the robots' growing skill touch both alike. Figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from mujoco.batch import Batch

from hpclab.algorithms.ppo import PPO
from hpclab.config.load import load_config
from hpclab.envs.make import make_env
from hpclab.envs.manager import ManagerEnv

_CONFIG = Path(__file__).parents[2] / "configs" / "g1.yaml"
_WARM_UP_ITERATIONS = 2


class BarePhysics:
    """The physics of an environment's rollout, repeated without anything around it."""

    def __init__(self, env: ManagerEnv, threads: int) -> None:
        self._env = env
        self._batch = Batch(env.sim.model, env.num_envs, threads)
        self._ctrl = self._batch.bind("ctrl")
        self._inputs: list[np.ndarray] = []

    def follow(self) -> None:
        """Take the environment's state as the start of a rollout."""
        self._batch.state[:] = self._env.sim.state_dict()["integration"].numpy()
        self._inputs.clear()

    def record(self) -> None:
        """Note the actuator inputs of the control step just done."""
        self._inputs.append(self._env.sim.ctrl.numpy().astype(np.float64))

    def repeat_s(self) -> float:
        """Run the rollout noted; return its time [s]."""
        start = time.perf_counter()
        for inputs in self._inputs:
            self._ctrl[:] = inputs
            self._batch.step(nstep=self._env.sim.num_substeps)
        return time.perf_counter() - start


def measure(num_envs: int, iterations: int, threads: int) -> dict[str, float]:
    """Train G1 for some iterations; return the medians as a flat record."""
    config = load_config(_CONFIG, [f"env.num_envs={num_envs}"])
    torch.manual_seed(config.seed)
    device = torch.device("cpu")
    env = make_env(config, num_envs=num_envs, device=device, threads=threads)
    ppo = PPO(
        config,
        observation_dims=env.observation_dims,
        num_actions=env.num_actions,
        num_envs=num_envs,
        device=device,
    )
    physics = BarePhysics(env, threads)
    steps = config.algorithm.num_steps_per_env
    observations = env.reset()
    collect, learn, bare = [], [], []
    for iteration in range(_WARM_UP_ITERATIONS + iterations):
        physics.follow()
        recording_s = 0.0
        start = time.perf_counter()
        ppo.start_rollout()
        for _ in range(steps):
            step = env.step(ppo.act(observations))
            ppo.process_step(step)
            observations = step.observations
            paused = time.perf_counter()
            physics.record()
            recording_s += time.perf_counter() - paused
        ppo.finish_rollout(observations)
        collected = time.perf_counter()
        ppo.update()
        learned = time.perf_counter()
        bare_s = physics.repeat_s()
        if iteration >= _WARM_UP_ITERATIONS:
            collect.append(collected - start - recording_s)
            learn.append(learned - collected)
            bare.append(bare_s)
    env.close()
    samples = num_envs * steps
    iteration_s = statistics.median(c + u for c, u in zip(collect, learn, strict=True))
    return {
        "num_envs": num_envs,
        "train_steps_per_s": round(samples / iteration_s),
        "collect_s": round(statistics.median(collect), 4),
        "learn_s": round(statistics.median(learn), 4),
        "collect_steps_per_s": round(samples / statistics.median(collect)),
        "bare_physics_steps_per_s": round(samples / statistics.median(bare)),
        "collect_to_bare_physics": round(statistics.median(b / c for b, c in zip(bare, collect, strict=True)), 3),
        "train_to_bare_physics": round(statistics.median(bare) / iteration_s, 3),
    }


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--iterations", type=int, default=8, help="measured iterations of each size")
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    report = {
        "machine": {"cpu": _cpu_model(), "threads": threads, "system": platform.platform()},
        "versions": {name: version(name) for name in ("hpclab", "mujoco", "torch")},
        "date": time.strftime("%Y-%m-%d"),
        "results": [measure(num_envs, options.iterations, threads) for num_envs in options.num_envs],
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
