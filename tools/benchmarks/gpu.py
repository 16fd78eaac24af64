#!/usr/bin/env python3
"""Measure G1 training on this machine's NVIDIA GPUs against bare mujoco-warp physics; print JSON and tables.

    .venv/bin/python tools/benchmarks/gpu.py [--num-envs 4096 16384] [--gpus 1 2] [--iterations 40] [--output FILE]
        [--peer PYTHON] [--precision float32 tf32 bf16] [--leak 2000] [--set KEY.SUB=VALUE ...]

Training is `hpclab train configs/g1.yaml` with its logging, once for every number of environments and of GPUs; its
figures are medians over the second half of the iterations. The physics and the policy of one rollout alone are then
timed with device events in CUDA graphs, from the states in which the training with one GPU ended. `--peer` trains the
same task with the mjlab of another Python environment, after ours, and gives the ratio. `--precision` compares
settings of `algorithm.precision`, speed and learning. `--leak` trains for many iterations and watches the memory.

Every measurement runs in processes of its own; one that fails leaves its error in the report and ends no other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":  # this folder must not lead the path: it holds the name of a standard module
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from typing import Any

import torch
from benchmarks import training_runs
from benchmarks.memory import MemoryWatch
from benchmarks.report import Report, show

from hpclab.run_folder import RunFolder

_PARTS = Path(__file__).with_name("gpu_parts.py")


class Benchmark:
    """The measurements, which share a scratch folder and a report."""

    def __init__(self, options: argparse.Namespace, folder: Path, report: Report) -> None:
        self.options = options
        self.folder = folder
        self.report = report

    def scaling(self, num_envs: int) -> None:
        """Train with every number of GPUs, then measure parts and the peer."""
        alone: dict[str, Any] | None = None
        for num_gpus in sorted(self.options.gpus):
            result: dict[str, Any] = {"num_envs": num_envs, "num_gpus": num_gpus}
            self.report.values.setdefault("results", []).append(result)
            name = f"g1-{num_envs}x{num_gpus}"
            run = RunFolder(self.folder / name)
            train = self._measure("train", lambda: self._train(run.name, num_envs, num_gpus), result)  # noqa: B023
            if num_gpus == 1:
                alone = train
                if train is not None:
                    parts = self._measure("parts", lambda: self._measure_parts(run), result)  # noqa: B023
                    if parts is not None:
                        ratio = train["train_steps_per_s"] / parts["physics_steps_per_s"]
                        result["train_to_physics"] = round(ratio, 3)
            elif train is not None and alone is not None:
                ratio = train["train_steps_per_s"] / (num_gpus * alone["train_steps_per_s"])
                result["weak_scaling"] = round(ratio, 4)
                # What the update takes beyond that of one GPU is its collectives, and what ranks wait for each other.
                result["collectives_s"] = round(train["learn_s"] - alone["learn_s"], 4)
            if self.options.peer is not None:
                peer = self._measure("peer", lambda: self._peer(num_envs, num_gpus), result)  # noqa: B023
                if peer is not None and train is not None:
                    result["train_to_peer"] = round(train["train_steps_per_s"] / peer["train_steps_per_s"], 2)
            self.report.write()

    def precision(self, num_envs: int) -> None:
        """Train with each precision, from the same seed."""
        results = self.report.values.setdefault("precision", {})
        for precision in self.options.precision:

            def compare(precision: str = precision) -> dict[str, Any]:
                iterations = self.options.precision_iterations
                name = f"precision-{precision}"
                run = self._run(name, num_envs, 1, iterations, [f"algorithm.precision={precision}"])
                return training_runs.read_training(run) | training_runs.read_learning(run)

            self.report.measure(precision, compare, results)

    def leak(self, num_envs: int) -> None:
        """Train for many iterations and report how memory grew."""
        gpu = 0 if self.options.device == "cuda" else None
        watch = MemoryWatch(gpu)

        def watched() -> dict[str, Any]:
            run = self._run("leak", num_envs, 1, self.options.leak, [], watch)
            return {"num_envs": num_envs, "asked_iterations": self.options.leak} | (
                training_runs.read_training(run) | watch.summary()
            )

        self.report.measure("leak", watched)

    def _measure(self, name: str, work: Any, result: dict[str, Any]) -> Any:
        return self.report.measure(name, work, result)

    def _train(self, name: str, num_envs: int, num_gpus: int) -> dict[str, Any]:
        return training_runs.read_training(self._run(name, num_envs, num_gpus, self.options.iterations, []))

    def _run(
        self,
        name: str,
        num_envs: int,
        num_gpus: int,
        iterations: int,
        overrides: list[str],
        on_tick: Any = lambda pid, run: None,
    ) -> RunFolder:
        settings = [f"env.num_envs={num_envs}", f"run.max_iterations={iterations}", *self.options.overrides, *overrides]
        if self.options.device == "cuda":
            devices = ["--gpu-ids", *map(str, range(num_gpus))]
        else:
            devices = ["--gpu-ids", "none", "--num-workers", str(num_gpus)]
        return training_runs.train(
            self.folder,
            name,
            settings,
            devices=devices,
            limit_s=self.options.limit,
            config=self.options.config,
            on_tick=on_tick,
        )

    def _measure_parts(self, run: RunFolder) -> dict[str, float]:
        command = [sys.executable, str(_PARTS), str(run.path), "--device", self.options.device]
        command += ["--repeats", str(self.options.repeats)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.options.limit)
        if done.returncode:
            raise training_runs.RunError(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        parts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return parts

    def _peer(self, num_envs: int, num_gpus: int) -> dict[str, Any]:
        gpus = num_gpus if self.options.device == "cuda" else 0
        logs = training_runs.train_peer(
            self.options.peer, self.folder, num_envs, gpus, self.options.iterations, self.options.limit
        )
        return training_runs.read_peer(logs, num_envs, gpus)


def _rows(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results with their parts side by side."""
    rows = []
    for result in values.get("results", []):
        row = {key: value for key, value in result.items() if not isinstance(value, dict)}
        for part in ("train", "parts"):
            row |= {key: value for key, value in result.get(part, {}).items() if key != "traceback"}
        row |= {f"peer {key}": value for key, value in result.get("peer", {}).items() if key != "traceback"}
        rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Parse the options, measure, print; return 1 when a measurement failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[4096, 16384], help="environments of each GPU")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1], help="numbers of GPUs, one run each")
    parser.add_argument("--iterations", type=int, default=40, help="iterations of each run")
    parser.add_argument("--repeats", type=int, default=10, help="of the parts alone")
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that has mjlab")
    parser.add_argument("--precision", nargs="+", default=[], metavar="PRECISION", help="values to compare")
    parser.add_argument("--precision-iterations", type=int, default=300)
    parser.add_argument("--leak", type=int, metavar="ITERATIONS", help="watch the memory of a run this long")
    parser.add_argument("--skip-scaling", action="store_true", help="only what --precision and --leak ask for")
    parser.add_argument("--limit", type=float, default=540.0, metavar="S", help="a run is stopped and read after this")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this program out")
    parser.add_argument("--config", type=Path, default=training_runs.CONFIG)
    parser.add_argument("--output", type=Path, help="write the JSON to this file, as it comes")
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", metavar="KEY.SUB=VALUE", help="for our runs")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU: this benchmark needs one that torch can use")
    report = Report(options.output, command=" ".join(["tools/benchmarks/gpu.py", *(arguments or sys.argv[1:])]))
    with tempfile.TemporaryDirectory() as folder:
        benchmark = Benchmark(options, Path(folder), report)
        if not options.skip_scaling:
            for num_envs in options.num_envs:
                benchmark.scaling(num_envs)
        if options.precision:
            benchmark.precision(options.num_envs[0])
        if options.leak is not None:
            benchmark.leak(options.num_envs[0])
    print(report.text())
    show("training", _rows(report.values))
    if precisions := report.values.get("precision"):
        show("precision", [{"precision": name} | result for name, result in precisions.items()])
    if leak := report.values.get("leak"):
        show("memory", [{key: value for key, value in leak.items() if key != "samples"}])
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
