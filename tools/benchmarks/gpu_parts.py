#!/usr/bin/env python3
"""Time the physics and the policy of a run's control steps alone; print one JSON object. `gpu.py` calls this.

    .venv/bin/python tools/benchmarks/gpu_parts.py RUN [--device cuda|cpu] [--repeats 10]

Everything starts from the states of the run's last checkpoint. The physics are those of one more rollout, with the same
actuator inputs, and nothing around them. On CUDA each part is a CUDA graph, timed with device events.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # this folder must not lead the path: it holds the name of a standard module
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import load_config
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError
from hpclab.run_folder import RunFolder
from hpclab.runners.capture import Captured
from hpclab.worker.trial import trial

_WARM_UP = 3
"""Calls that run plainly or capture."""


def measure_parts(run: RunFolder, device: torch.device, repeats: int) -> dict[str, float]:
    """Return the times of one rollout's physics and of its policy.

    Raises:
        CheckpointError: the run's last checkpoint is not of one rank.
    """
    config = load_config(run.config)
    num_envs, steps = config.env.num_envs, config.algorithm.num_steps_per_env
    with trial(config, device=device, threads=config.env.threads or 1) as runner:
        env: Any = runner.env
        algorithm = runner.algorithm
        checkpoint = CheckpointStore(run.checkpoints, Collectives(), config_sha256="").load_newest(num_envs)
        if checkpoint is None or checkpoint.shard is None:
            raise CheckpointError(f"{run.path}: its last checkpoint does not hold {num_envs} environments of one rank")
        algorithm.load_state_dict(checkpoint.shared["algorithm"])
        env.load_state_dict(checkpoint.shard["environment"])
        state = env.sim.state_dict()
        inputs: list[torch.Tensor] = []
        algorithm.start_rollout()
        observations = env.observe()
        for _ in range(steps):
            step = env.step(algorithm.act(observations))
            algorithm.process_step(step)
            inputs.append(env.sim.ctrl.clone())
            observations = step.observations

        def physics() -> None:
            for ctrl in inputs:
                env.sim.ctrl.copy_(ctrl)
                env.sim.step()

        def policy() -> None:
            for _ in range(steps):
                algorithm.act_inference(observations)

        physics_s = _time(physics, device, repeats, env.capturing, before=lambda: env.sim.load_state_dict(state))
        policy_s = _time(policy, device, repeats, nullcontext, before=lambda: None)
    samples = num_envs * steps
    parts = {
        "physics_s": round(physics_s, 5),
        "physics_steps_per_s": round(samples / physics_s),
        "policy_s": round(policy_s, 5),
        "policy_steps_per_s": round(samples / policy_s),
    }
    if device.type == "cuda":
        parts["peak_memory_gib"] = round(torch.cuda.max_memory_reserved(device) / 2**30, 2)
    return parts


def _time(
    work: Callable[[], None],
    device: torch.device,
    repeats: int,
    guard: Callable[[], AbstractContextManager[None]],
    *,
    before: Callable[[], None],
) -> float:
    """Return the median time of `work` [s], in a CUDA graph where there is CUDA; `before` it is not counted."""
    captured = Captured(work, name="the benchmark", device=device, enabled=True, guard=guard)
    times = []
    for repeat in range(_WARM_UP + repeats):
        before()
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            captured()
            end.record()
            end.synchronize()
            elapsed = begin.elapsed_time(end) / 1000.0
        else:
            start = time.perf_counter()
            captured()
            elapsed = time.perf_counter() - start
        if repeat >= _WARM_UP:
            times.append(elapsed)
    return statistics.median(times)


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    print(json.dumps(measure_parts(RunFolder(options.run), torch.device(options.device), options.repeats)))


if __name__ == "__main__":
    main()
