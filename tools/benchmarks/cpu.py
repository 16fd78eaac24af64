#!/usr/bin/env python3
"""Measure G1 training on this machine's CPU cores against bare MuJoCo physics, in one run; print JSON.

    .venv/bin/python tools/benchmarks/cpu.py [--num-envs 64 256] [--iterations 8] [--output FILE]

Each iteration trains as `hpclab train` does on one rank: 24 control steps of every environment, then 5 x 4
mini-batches. Each control step's physics is then repeated on a bare `mujoco.batch.Batch`, from the same states and
with the same actuator inputs, so that the machine's drift and the robots' growing skill touch both alike. Figures are
medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hpclab.worker.threads import limit_spinning

limit_spinning(os.environ)  # as every worker does before it loads torch

import numpy as np
import torch
from mujoco.batch import Batch

from hpclab.algorithms.make import algorithm_for
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import load_config
from hpclab.distributed.collectives import Collectives
from hpclab.envs.make import make_env
from hpclab.envs.sim.mujoco_batch import MujocoSim
from hpclab.metrics import record as tags
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.versions import versions

_CONFIG = Path(__file__).parents[2] / "configs" / "g1.yaml"
_WARM_UP_ITERATIONS = 2


class BarePhysics:
    """A metrics sink that repeats the physics of each rollout without anything around it, and keeps the times."""

    def __init__(self, sim: MujocoSim, num_steps: int, threads: int) -> None:
        self.records: list[Record] = []
        self.times_s: list[float] = []
        self._sim = sim
        self._batch = Batch(sim.model, sim.num_envs, threads)
        self._ctrl = self._batch.bind("ctrl")
        # before each control step; made once, because making them within a rollout would count as its time
        self._states = np.zeros((num_steps, *sim.states.shape))
        self._inputs = np.zeros((num_steps, *self._ctrl.shape))
        self._num_recorded = 0
        self._step = sim.step
        sim.step = self._record_and_step  # type: ignore[method-assign]

    def write(self, record: Record) -> None:
        """Repeat the rollout that `record` is of."""
        total = 0.0
        assert self._num_recorded == len(self._states)
        for states, inputs in zip(self._states, self._inputs, strict=True):
            self._batch.state[:] = states
            self._ctrl[:] = inputs
            start = time.perf_counter()
            self._batch.step(nstep=self._sim.num_substeps)
            total += time.perf_counter() - start
        self.times_s.append(total)
        self.records.append(record)
        self._num_recorded = 0

    def close(self) -> None:
        """Nothing is open."""

    def _record_and_step(self, control: Callable[[], None] | None = None) -> None:
        assert control is None, "actuators that act in every substep are not repeated"
        self._states[self._num_recorded] = self._sim.states
        self._inputs[self._num_recorded] = self._sim.ctrl.numpy()
        self._num_recorded += 1
        self._step()


def measure(num_envs: int, iterations: int, threads: int) -> dict[str, float]:
    """Train G1 for some iterations; return the medians as a flat record."""
    iterations += _WARM_UP_ITERATIONS
    config = load_config(_CONFIG, [f"env.num_envs={num_envs}", f"run.max_iterations={iterations}"])
    torch.manual_seed(config.seed)
    device = torch.device("cpu")
    env = make_env(config, num_envs=num_envs, device=device, threads=threads)
    algorithm = algorithm_for(env, config, Collectives())
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder), Collectives(), config_sha256="")
        runner = OnPolicyRunner(config, env, algorithm, Collectives(), store, lambda: False)
        runner.resume()
        assert isinstance(env.sim, MujocoSim), "mujoco.batch is what is measured"
        physics = BarePhysics(env.sim, config.algorithm.num_steps_per_env, threads)
        runner.learn(Reporter([physics]))
    env.close()
    values = [record.values for record in physics.records[_WARM_UP_ITERATIONS:]]
    bare = physics.times_s[_WARM_UP_ITERATIONS:]
    collect = [value[tags.COLLECTION_TIME] for value in values]
    learn = [value[tags.LEARNING_TIME] for value in values]
    samples = num_envs * config.algorithm.num_steps_per_env
    return {
        "num_envs": num_envs,
        "train_steps_per_s": round(statistics.median(value[tags.TOTAL_FPS] for value in values)),
        "collect_s": round(statistics.median(collect), 4),
        "learn_s": round(statistics.median(learn), 4),
        "collect_steps_per_s": round(samples / statistics.median(collect)),
        "bare_physics_steps_per_s": round(samples / statistics.median(bare)),
        "collect_to_bare_physics": round(statistics.median(b / c for b, c in zip(bare, collect, strict=True)), 3),
        "train_to_bare_physics": round(
            statistics.median(b / (c + u) for b, c, u in zip(bare, collect, learn, strict=True)), 3
        ),
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
        "versions": versions(),
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
