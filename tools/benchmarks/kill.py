#!/usr/bin/env python3
"""Kill a training run with SIGKILL at random times, and compare what follows with a run that nobody interrupted.

    .venv/bin/python tools/benchmarks/kill.py [--kills 200] [--ranks 1] [--seed 0] [--output FILE]

A tiny cart-pole run saves after every iteration. All its ranks are killed at a random time after their start: while
they load, train or write. New processes then go on from what is on disk. Every checkpoint that they complete, and at
the end the logged curve, must equal the uninterrupted run's bit for bit. A complete run begins anew until there are
enough kills. Prints one line for each kill and a summary; exit code 0 when every resume was exact.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.compare import differences
from hpclab.checkpoint.state import from_bytes
from hpclab.config.load import dump_config
from hpclab.config.schema import RunConfig
from hpclab.launch.compare_runs import compare_curves
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder
from hpclab.versions import versions

RESULTS = Path(__file__).with_name("results")
_PRELOADED = [
    "torch",
    "torch.distributed",
    "hpclab.worker.compose",
    "hpclab.algorithms.ppo",
    "hpclab.envs.sim.mujoco_batch",
]
_ATTEMPT_ITERATIONS = 10
"""What an attempt gets done if it is killed as late as can be."""


@dataclass(slots=True)
class Kill:
    """One kill, and what came of it."""

    number: int
    lap: int
    """How often the run had begun anew."""
    after_s: float
    """Since the start of the processes [s]."""
    hit: str
    """What they were doing: loading, training, or writing, and how much of that was on disk."""
    iteration: int
    """Of the newest checkpoint then, from which the next attempt goes on."""
    lost: int
    """Iterations reported after that checkpoint, which have to be done again."""
    compared: int = 0
    """Checkpoints that the next attempts completed, up to the next that got any done, and that were compared."""
    different: str = ""
    """What differed in them first; nothing where the resume was exact."""


def config(iterations: int) -> RunConfig:
    """Return a run of eight cart-poles and two small networks that saves after every iteration."""
    small = {"hidden_dims": [16]}
    return RunConfig.model_validate(
        {
            "task": "cartpole-balance",
            "run": {"max_iterations": iterations, "save_interval": 1},
            "env": {"num_envs": 8, "threads": 1},
            "algorithm": {"num_steps_per_env": 8, "num_learning_epochs": 2, "num_mini_batches": 2},
            "actor": small,
            "critic": small,
            "sync": {"preset": "global"},
            "metrics": {"tensorboard": False},
        }
    )


class Processes:
    """The ranks of one attempt, each a new process."""

    def __init__(self, run: RunFolder, attempt: int, ranks: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = _server()
        self.started = time.monotonic()
        self._ranks = [
            server.Process(target=_train, args=(str(run.path), attempt, rank, ranks, port), daemon=True)
            for rank in range(ranks)
        ]
        for rank in self._ranks:
            rank.start()

    def kill(self, after_s: float) -> bool:
        """Kill them all that long after their start; return whether any still ran.

        Raises:
            RuntimeError: one of them had failed before.
        """
        self._ranks[0].join(max(0.0, self.started + after_s - time.monotonic()))
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.join()
        killed = any(rank.exitcode == -signal.SIGKILL for rank in self._ranks)
        if not killed:
            self.finish()
        return killed

    def finish(self) -> None:
        """Wait for their own end.

        Raises:
            RuntimeError: one of them failed.
        """
        for rank in self._ranks:
            rank.join()
        if codes := [rank.exitcode for rank in self._ranks if rank.exitcode != 0]:
            raise RuntimeError(f"a rank ended with {codes[0]}")


def _server() -> multiprocessing.context.ForkServerContext:
    """Return what starts processes that fork from one that has imported everything and done nothing."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOADED)
    return server


def _train(run: str, attempt: int, rank: int, ranks: int, port: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from hpclab.worker.context import WorkerContext
    from hpclab.worker.main import run_worker
    from hpclab.worker.spec import WorkerSpec

    torch.set_num_threads(1)
    place = WorkerContext(rank, rank, ranks, ranks, "127.0.0.1", port) if ranks > 1 else WorkerContext.single()
    run_worker(WorkerSpec(run, attempt, ("cpu",) * ranks, console=False), place)


class Trial:
    """An uninterrupted run, and one with the same settings that is killed."""

    def __init__(self, folder: Path, *, iterations: int, ranks: int, seed: int) -> None:
        self.kills: list[Kill] = []
        self._ranks = ranks
        self._random = random.Random(seed)
        self._iterations = iterations
        self._straight, self._run = (self._new_run(folder / name) for name in ("straight", "killed"))
        self._lap = 0
        self._attempt = 0
        self._pending: list[Kill] = []
        """Kills after which no attempt has completed a checkpoint yet."""
        server = _server().Process(target=int)
        server.start()
        server.join()  # it has imported everything now
        start = time.monotonic()
        Processes(self._straight, 0, ranks).finish()
        curve = read_curve(self._straight.metrics / "metrics.jsonl")
        self.iteration_s = (curve[-1]["time"] - curve[0]["time"]) / (iterations - 1)
        self.startup_s = time.monotonic() - start - iterations * self.iteration_s
        self.longest_s = self.startup_s + _ATTEMPT_ITERATIONS * self.iteration_s

    def go(self, kills: int) -> Iterator[Kill]:
        """Kill as often, and yield each kill when it is known what came of it; complete the run at the end."""
        while len(self.kills) < kills:
            yield from self._lap_of(kills)
            self._begin_anew()

    def _lap_of(self, kills: int) -> Iterator[Kill]:
        while True:
            newest = self._newest()
            processes = Processes(self._run, self._attempt, self._ranks)
            self._attempt += 1
            kill = None
            if len(self.kills) < kills:
                after_s = self._random.uniform(0.0, self.longest_s)
                if processes.kill(after_s):
                    kill = self._describe(after_s, newest)
            else:
                processes.finish()
            yield from self._settle(newest)
            if kill is not None:
                self.kills.append(kill)
                self._pending.append(kill)
            elif self._newest() == self._iterations:
                yield from self._complete()
                return

    def _describe(self, after_s: float, before: int) -> Kill:
        newest = self._newest()
        reported = read_curve(self._run.metrics / "metrics.jsonl")
        lost = max(0, int(reported[-1]["iteration"]) + 1 - newest) if reported else 0
        half = [entry for entry in self._run.checkpoints.glob(".tmp-*") if entry.is_dir()]
        log = self._run.rank_log(self._attempt - 1, 0)
        loaded = newest > before or (log.exists() and "continuing from" in log.read_text())
        if half:
            files = sorted(path.name for path in half[0].iterdir())
            hit = f"writing {half[0].name.removeprefix('.tmp-')}: {', '.join(files) or 'nothing'} there"
        else:
            hit = "training" if loaded or lost else "loading"
        return Kill(len(self.kills) + 1, self._lap, round(after_s, 3), hit, newest, lost)

    def _settle(self, before: int) -> Iterator[Kill]:
        """Compare the checkpoints that the last attempt completed; it tells what came of the kills before it."""
        new = [iteration for iteration in disk.iterations(self._run.checkpoints) if iteration > before]
        if new:
            yield from self._judge(sorted(new))

    def _judge(self, iterations: list[int]) -> Iterator[Kill]:
        different = next(filter(None, (self._difference(iteration) for iteration in iterations)), "")
        for kill in self._pending:
            kill.compared, kill.different = len(iterations), different
            yield kill
        self._pending = []

    def _complete(self) -> Iterator[Kill]:
        """Compare the curves; a kill after the last checkpoint has had nothing left to resume but this."""
        one, other = (read_curve(run.metrics / "metrics.jsonl") for run in (self._straight, self._run))
        if found := compare_curves(one, other, "exact"):
            for kill in [kill for kill in self.kills if kill.lap == self._lap]:
                kill.different = kill.different or f"curve: {found[0]}"
        yield from self._judge([self._iterations])

    def _difference(self, iteration: int) -> str:
        """Return what differs first in a checkpoint of both runs; nothing where no bit does."""
        folders = [run.checkpoints / disk.folder_name(iteration) for run in (self._straight, self._run)]
        files = [disk.verify(folder).files for folder in folders]
        if files[0].keys() != files[1].keys():
            return f"{folders[1].name}: other files"
        for file in files[0]:
            if files[0][file].sha256 != files[1][file].sha256:
                one, other = (from_bytes((folder / file).read_bytes(), str(folder / file)) for folder in folders)
                for line in differences(one, other):
                    return f"{folders[1].name}/{file}: {line}"
        return ""

    def _newest(self) -> int:
        return next(iter(disk.iterations(self._run.checkpoints)), 0)

    def _begin_anew(self) -> None:
        shutil.rmtree(self._run.path)
        self._new_run(self._run.path)
        self._lap += 1
        self._attempt = 0

    def _new_run(self, folder: Path) -> RunFolder:
        folder.mkdir(parents=True)
        run = RunFolder(folder)
        run.config.write_text(dump_config(config(self._iterations)))
        return run


def summary(trial: Trial) -> dict[str, Any]:
    """Return the numbers that count."""
    kills = trial.kills
    return {
        "kills": len(kills),
        "exact_resumes": sum(kill.compared > 0 and not kill.different for kill in kills),
        "hit": dict(Counter(kill.hit.split()[0] for kill in kills)),
        "checkpoints_compared": sum(kill.compared for kill in kills),
        "iterations_lost": sum(kill.lost for kill in kills),
        "median_after_s": round(statistics.median(kill.after_s for kill in kills), 3),
        "startup_s": round(trial.startup_s, 3),
        "iteration_s": round(trial.iteration_s, 4),
    }


def main() -> int:
    """Parse the options, kill, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=100, help="of the run, after which it begins anew")
    parser.add_argument("--seed", type=int, default=0, help="of the times at which to kill")
    parser.add_argument("--output", type=Path, help="also write everything to this file, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), iterations=options.iterations, ranks=options.ranks, seed=options.seed)
        print(f"{'kill':>4} {'after':>7} {'from':>5} {'lost':>4} {'compared':>8}  {'resume':6}  hit", flush=True)
        for kill in trial.go(options.kills):
            verdict = kill.different or "exact"
            numbers = f"{kill.number:4} {kill.after_s:6.3f}s {kill.iteration:5} {kill.lost:4} {kill.compared:8}"
            print(f"{numbers}  {verdict:6}  {kill.hit}", flush=True)
    report = {
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": platform.platform()},
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
        "ranks": options.ranks,
        "seed": options.seed,
        "summary": summary(trial),
    }
    print(json.dumps(report["summary"], indent=1))
    if options.output is not None:
        rows = ",\n  ".join(json.dumps(asdict(kill)) for kill in trial.kills)
        head = json.dumps(report, indent=1).removesuffix("\n}")
        options.output.write_text(f'{head},\n "kills": [\n  {rows}\n ]\n}}\n')
    return 0 if report["summary"]["exact_resumes"] == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
