#!/usr/bin/env python3
"""Show where an iteration's time goes, and how many kernels, graph launches, copies and host waits it has.

    .venv/bin/python tools/benchmarks/profile.py [CONFIG] [--num-envs 4096] [--device cuda|cpu] [--output FILE]
        [KEY.SUB=VALUE ...]

Four measurements, each by itself: iterations as they are; where the host waits for the device, by source line; the
device's work under torch.profiler; and the same without CUDA graphs, divided among the parts of a control step. The
profiler slows what it watches, most of all the host: take shares and counts from it, and times from the first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":  # this folder must not lead the path: its name is that of a standard module
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import os
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from hpclab.worker.threads import limit_spinning

limit_spinning(os.environ)  # as every worker does before it loads torch

import torch
from benchmarks import device_trace
from benchmarks.report import Report, show
from torch.profiler import ProfilerActivity, profile, record_function

from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.metrics import record as tags
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.worker.trial import trial

_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "g1.yaml"
_CAPTURED = 4
"""Iterations until everything runs from graphs and the caches are warm."""
_TOP = 25


class _Records:
    """A sink that keeps records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass


def measure_iterations(runner: OnPolicyRunner, iterations: int) -> dict[str, float]:
    """Time iterations as they are, without a profiler; medians [s]."""
    sink = _Records()
    reporter = Reporter([sink])
    wall = []
    for _ in range(iterations):
        start = time.perf_counter()
        runner.iterate(reporter)
        wall.append(time.perf_counter() - start)
    collect, learn = (
        statistics.median(record.values[tag] for record in sink.records)
        for tag in (tags.COLLECTION_TIME, tags.LEARNING_TIME)
    )
    total = statistics.median(wall)
    steps = runner.env.num_envs * runner.config.algorithm.num_steps_per_env
    return {
        "iteration_s": round(total, 5),
        "collect_s": round(collect, 5),
        "learn_s": round(learn, 5),
        "other_s": round(total - collect - learn, 5),
        "train_steps_per_s": round(steps / total),
    }


def find_host_waits(runner: OnPolicyRunner) -> dict[str, Any]:
    """Return where torch waits for the device in one iteration, by source line; warp's waits are not seen."""
    if runner.env.device.type != "cuda":
        return {"count": 0, "by_line": {}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            runner.iterate(Reporter())
        finally:
            torch.cuda.set_sync_debug_mode("default")
    lines = Counter(
        f"{Path(warning.filename).name}:{warning.lineno}"
        for warning in caught
        if "synchronizing CUDA operation" in str(warning.message)
    )
    return {"count": lines.total(), "by_line": dict(lines.most_common())}


def profile_iterations(runner: OnPolicyRunner, iterations: int, trace_file: Path | None) -> dict[str, Any]:
    """Profile whole iterations; return counts and times of one."""
    on_cuda = runner.env.device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        path = trace_file or Path(folder) / "trace.json"
        with profile(activities=_activities(runner.env.device)) as profiler:
            start = time.perf_counter()
            for _ in range(iterations):
                with record_function("rest of the iteration"):
                    runner.iterate(Reporter())
            if on_cuda:
                torch.cuda.synchronize()
            wall_s = time.perf_counter() - start
        profiler.export_chrome_trace(str(path))
        trace = device_trace.read(path)
    parts = [
        {
            "part": name,
            "host_ms": round(cost.host_us / iterations / 1000.0, 3),
            "device_ms": round(cost.device_us / iterations / 1000.0, 3),
            "kernels": round(cost.kernels / iterations, 1),
        }
        for name, cost in device_trace.costs(trace).items()
    ]
    result: dict[str, Any] = {
        "iterations": iterations,
        "iteration_s": round(wall_s / iterations, 5),
        "parts": sorted(parts, key=lambda part: -max(part["host_ms"], part["device_ms"])),
        **device_trace.host_counts(trace, iterations),
    }
    if on_cuda:
        result["device_busy_share"] = round(device_trace.busy_us(trace) / 1e6 / wall_s, 4)
        result["kinds"] = device_trace.by_group(trace.kernels, iterations)
        result["top_kernels"] = device_trace.by_name(trace.kernels, iterations, _TOP)
    else:
        named = {part["part"] for part in parts}
        operators = [row for row in profiler.key_averages() if row.key not in named]
        result["top_operators"] = [
            {
                "name": row.key,
                "calls": round(row.count / iterations, 1),
                "ms": round(row.self_cpu_time_total / iterations / 1000.0, 4),
            }
            for row in sorted(operators, key=lambda row: -row.self_cpu_time_total)[:_TOP]
        ]
    return result


def _activities(device: torch.device) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]


def name_parts(runner: OnPolicyRunner) -> None:
    """Annotate the parts of a control step, so that a profile without graphs can tell them apart."""
    env: Any = runner.env
    _name(runner, "_read_numbers", "the statistics")
    _name(runner.algorithm, "act", "policy")
    _name(runner.algorithm, "process_step", "storage")
    _name(env.sim, "step", "physics")
    _name(env.sim, "forward", "forward")
    _name(env.terminations, "compute", "terminations")
    _name(env.rewards, "compute", "rewards")
    _name(env.events, "interval", "interval events")
    _name(env, "_reset", "resets")
    _name(env, "refresh", "commands and trackers")
    _name(env.observations, "compute", "observations")
    _name(env, "step", "rest of the control step")


def _name(owner: Any, method: str, label: str) -> None:
    original: Callable[..., Any] = getattr(owner, method)

    def named(*args: Any, **kwargs: Any) -> Any:
        with record_function(label):
            return original(*args, **kwargs)

    setattr(owner, method, named)


def run(config: RunConfig, device: torch.device, options: argparse.Namespace) -> Report:
    """Do the four measurements."""
    about = {"task": config.task, "num_envs": config.env.num_envs, "device": str(device)}
    report = Report(options.output, **about, overrides=options.overrides)
    threads = config.env.threads or len(os.sched_getaffinity(0))
    with profile(activities=_activities(device)):  # so that the profiler knows of graphs captured from here on
        torch.zeros(1, device=device)

    def as_trained() -> None:
        with trial(config, device=device, threads=threads) as runner:
            for _ in range(_CAPTURED):
                runner.iterate(Reporter())
            report.measure("iterations", lambda: measure_iterations(runner, options.iterations))
            report.measure("host_waits", lambda: find_host_waits(runner))
            _name(runner, "_read_numbers", "the statistics")
            report.measure("profile", lambda: profile_iterations(runner, options.profiled, options.trace))

    def in_parts() -> dict[str, Any]:
        plain = config.model_copy(update={"run": config.run.model_copy(update={"cuda_graphs": False})})
        with trial(plain, device=device, threads=threads) as runner:
            name_parts(runner)
            for _ in range(_CAPTURED):
                runner.iterate(Reporter())
            return profile_iterations(runner, options.profiled, None)

    report.measure("as_trained", as_trained)
    report.measure("without_graphs", in_parts)
    return report


def print_tables(values: dict[str, Any]) -> None:
    """Print what was measured."""
    for name, title in (("profile", "as trained"), ("without_graphs", "without CUDA graphs")):
        found = values.get(name) or {}
        if "parts" not in found:
            continue
        show(f"parts of an iteration, {title}, under the profiler", found["parts"])
        for key in ("kinds", "top_kernels", "top_operators"):
            if key in found:
                show(f"{key.replace('_', ' ')}, {title}", found[key])
        counts = {key: value for key, value in found.items() if not isinstance(value, list)}
        show(f"counts of an iteration, {title}", [{"what": key, "number": value} for key, value in _flat(counts)])
    if isinstance(values.get("host_waits"), dict):
        show("torch's waits for the device in one iteration", [{"number": values["host_waits"].get("count")}])
        lines = values["host_waits"].get("by_line") or {}
        show("by line", [{"line": line, "waits": number} for line, number in lines.items()])
    if isinstance(values.get("iterations"), dict):
        show("iterations as they are", [values["iterations"]])


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        pairs += _flat(value, f"{prefix}{key} ") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return pairs


def main(arguments: list[str] | None = None) -> int:
    """Parse the options, measure, print; return 1 when a measurement failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, nargs="?", default=_CONFIG)
    parser.add_argument("overrides", nargs="*", help="key.sub=value")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="the GPU where there is one, if not given")
    parser.add_argument("--iterations", type=int, default=20, help="timed without the profiler")
    parser.add_argument("--profiled", type=int, default=2, help="iterations under the profiler")
    parser.add_argument("--output", type=Path, help="write the JSON to this file, as it comes")
    parser.add_argument("--trace", type=Path, help="keep the profiler's trace, for Perfetto")
    options = parser.parse_args(arguments)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    config = load_config(options.config, [f"env.num_envs={options.num_envs}", *options.overrides])
    report = run(config, device, options)
    print_tables(report.values)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
