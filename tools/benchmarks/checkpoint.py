#!/usr/bin/env python3
"""Measure what checkpoints cost G1 training on this machine's CPU cores; print JSON.

    .venv/bin/python tools/benchmarks/checkpoint.py [--num-envs 4096] [--iterations 3] [--output FILE]

One rank trains as `hpclab train` does and saves after every iteration. `lost_s` is the time that the training thread
spends on a checkpoint, all of it: copying the state, and taking the write further once an iteration. `write_s` is how
long the write takes in the background, flushed to disk; `load_s` how long a new store takes to verify and load it.
`audit_s` is one comparison of the training state over ranks without the collective itself. Figures are medians. Where
`load_average` (of the last 15 minutes) is above `threads`, others used the machine and every time is too long.
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
from typing import Any

from hpclab.worker.threads import limit_spinning

limit_spinning(os.environ)  # as every worker does before it loads torch

import torch

from hpclab.algorithms.make import algorithm_for
from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import load_config
from hpclab.distributed.audit import fingerprints
from hpclab.distributed.collectives import Collectives
from hpclab.envs.make import make_env
from hpclab.metrics import record as tags
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.versions import versions

_CONFIG = Path(__file__).parents[2] / "configs" / "g1.yaml"


class Clock:
    """A metrics sink that keeps the length of iterations, and adds up the time inside watched methods."""

    def __init__(self) -> None:
        self.iterations_s: list[float] = []
        self.spent_s: dict[str, list[float]] = {}

    def watch(self, owner: Any, method: str) -> None:
        """Time every call of a method from now on."""
        original: Callable[..., Any] = getattr(owner, method)
        times = self.spent_s.setdefault(method, [])

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                times.append(time.perf_counter() - start)

        setattr(owner, method, timed)

    def write(self, record: Record) -> None:
        self.iterations_s.append(record.values[tags.COLLECTION_TIME] + record.values[tags.LEARNING_TIME])

    def close(self) -> None:
        """Nothing is open."""


def measure(num_envs: int, iterations: int, threads: int, folder: Path) -> dict[str, float]:
    """Train and save after every iteration; return the medians as a flat record."""
    settings = [f"env.num_envs={num_envs}", f"run.max_iterations={iterations + 1}", "run.save_interval=1"]
    config = load_config(_CONFIG, settings)
    torch.manual_seed(config.seed)
    device = torch.device("cpu")
    env = make_env(config, num_envs=num_envs, device=device, threads=threads)
    algorithm = algorithm_for(env, config, Collectives())
    store = CheckpointStore(folder, Collectives(), config_sha256="")
    runner = OnPolicyRunner(config, env, algorithm, Collectives(), store, lambda: False)
    runner.resume()
    clock = Clock()
    clock.watch(runner.saving, "begin")
    clock.watch(runner.saving, "advance")
    clock.watch(disk, "write_file")
    runner.learn(Reporter([clock]))
    env.close()
    iteration = statistics.median(clock.iterations_s[1:])
    advances = sum(clock.spent_s["advance"]) / len(clock.spent_s["begin"])
    lost = statistics.median(clock.spent_s["begin"]) + advances
    newest = folder / disk.folder_name(iterations + 1)
    start = time.perf_counter()
    CheckpointStore(folder, Collectives(), config_sha256="").load_newest(num_envs)
    load_s = time.perf_counter() - start
    start = time.perf_counter()
    fingerprints(algorithm.state_dict(), device)
    audit_s = time.perf_counter() - start
    return {
        "num_envs": num_envs,
        "iteration_s": round(iteration, 4),
        "lost_s": round(lost, 5),
        "lost_to_iteration": round(lost / iteration, 5),
        "size_mb": round(sum(path.stat().st_size for path in newest.iterdir()) / 1e6, 2),
        "write_s": round(sum(clock.spent_s["write_file"]) / (iterations + 1), 4),
        "load_s": round(load_s, 4),
        "audit_s": round(audit_s, 5),
        "audit_at_interval_50_to_iteration": round(audit_s / 50 / iteration, 6),
    }


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[4096])
    parser.add_argument("--iterations", type=int, default=3, help="measured iterations, a checkpoint each")
    parser.add_argument("--folder", type=Path, help="write checkpoints below this folder, to measure its disk")
    parser.add_argument("--output", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    results = []
    for num_envs in options.num_envs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results.append(measure(num_envs, options.iterations, threads, Path(folder)))
    report = {
        "machine": {"threads": threads, "system": platform.platform(), "load_average": round(os.getloadavg()[2], 1)},
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
        "results": results,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
