#!/usr/bin/env python3
"""Train on a real Slurm cluster of two nodes while something happens to the run every 30 to 60 seconds.

Preemption (with a grace time, without one), USR2, kill -9 of a rank, a node's power cut, scancel: in random order. At
the end the run is completed, and a table says whether every iteration was done exactly once and nothing was left
behind. Needs root, on Debian, as tools/slurm_cluster.py does. Exit code 0 when every check passed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from slurm_lab import cluster
from slurm_lab.cgroups import detect_tracking
from slurm_lab.settings import Layout, Settings, Tracking
from slurm_lab.soak_checks import Happened, examine
from slurm_lab.soak_events import EVENTS
from slurm_lab.soaked_run import CONFIG, ENDED, SoakedRun, SoakError

from hpclab.launch import jobs
from hpclab.launch.check_list import Check
from hpclab.run_folder import RunFolder

RESULTS = Path(__file__).with_name("results")
GAP_S = (30.0, 60.0)
BACK_S = 300.0
"""Within which a run is back, on a machine that has more to do [s]."""
LAST_ITERATIONS = 200
PROGRESS = 3
"""Iterations of a new attempt after which it counts as back."""


@dataclass(slots=True)
class Soak:
    """One soak: its run, and what has happened so far."""

    run: SoakedRun
    rng: random.Random
    started: float = field(default_factory=time.monotonic)
    events: list[Happened] = field(default_factory=list)
    bag: list[int] = field(default_factory=list)
    problem: str = ""

    def until(self, end_s: float) -> None:
        """Let events happen until the time is over, each when the run is back after the one before.

        Raises:
            SoakError: the run did not come back.
        """
        self._wait_back(-1)
        while True:
            at = time.monotonic() - self.started + self.rng.uniform(*GAP_S)
            if at > end_s:
                return
            pause = at - (time.monotonic() - self.started)
            time.sleep(max(0.0, pause))
            self._happen()

    def _happen(self) -> None:
        run = self.run
        if not self.bag:  # every kind once before any comes again
            self.bag = self.rng.sample(range(len(EVENTS)), len(EVENTS))
        event = EVENTS[self.bag.pop()]
        before = Happened(round(time.monotonic() - self.started, 1), event.name, "", run.attempt, run.iteration)
        start = time.monotonic()
        happened = replace(before, what=event.happen(run, self.rng))
        self.events.append(happened)
        print(f"{happened.at_s:6.0f} s  {event.name}: {happened.what}, iteration {happened.iteration}", flush=True)
        by_itself = self._wait_back(happened.attempt)
        self.events[-1] = replace(happened, by_itself=by_itself, back_s=round(time.monotonic() - start, 1))

    def _wait_back(self, attempt: int) -> bool:
        """Wait until a later attempt trains, resuming the run where its job has ended; say whether none had to be."""
        run, by_itself = self.run, True

        def trains() -> bool:
            if run.attempt <= attempt:
                return False
            metrics = (run.run.metrics / "metrics.jsonl").exists()
            log = run.run.rank_log(run.attempt, 0)
            return metrics and log.exists() and log.read_text(errors="replace").count(" iteration ") >= PROGRESS

        deadline = time.monotonic() + BACK_S
        while not trains():
            if run.state() in ENDED:
                if not by_itself:
                    raise SoakError(f"the resumed job {run.job_id} ended as {run.state()}")
                by_itself = False
                run.resume()
            if time.monotonic() > deadline:
                raise SoakError(f"no attempt after {attempt} trains within {BACK_S:g} s; job {run.state()}")
            time.sleep(0.5)
        return by_itself

    def complete(self) -> int:
        """End the job, and resume it for a few hundred last iterations; return how many the run then has."""
        run = self.run
        run.hpclab("cancel", str(run.run.path))
        self.events.append(
            Happened(
                round(time.monotonic() - self.started, 1), "scancel", "hpclab cancel, end", run.attempt, run.iteration
            )
        )
        run.wait(lambda: run.state() in ENDED, "the end after hpclab cancel", BACK_S)
        total = run.iteration + 1 + LAST_ITERATIONS
        run.resume(f"run.max_iterations={total}")
        run.wait(lambda: run.state() in ENDED, f"{total} iterations", 2 * BACK_S)
        return total


def main() -> int:
    options = parser().parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10_000)
    with tempfile.TemporaryDirectory(prefix="hpclab-soak-") as name:
        folder = Path(name)
        layout = Layout(folder / "cluster")
        tracking: Tracking = "linuxproc" if options.linuxproc else detect_tracking()
        cluster.up(layout, Settings(tracking=tracking, grace_s=30, kill_wait_s=30))  # Slurm's own KillWait
        try:
            config = folder / "soak.yaml"
            config.write_text(CONFIG.format(root=folder / "runs"))
            soak = Soak(SoakedRun(layout, RunFolder(folder / "runs" / "soak")), random.Random(seed))
            print(f"seed {seed}, {options.minutes:g} minutes, 2 x {options.workers} workers, {tracking}", flush=True)
            total = -1
            try:
                soak.run.submit(config, workers=options.workers)
                soak.until(60 * options.minutes)
                total = soak.complete()
            except SoakError as error:
                soak.problem = str(error)
            checks = list(examine(soak.run, soak.events, total, 2 * options.workers))
            show(soak, checks)
            if soak.problem or not all(check.passed for check in checks):
                keep(soak, options.keep)
            else:
                write(soak, checks, seed, options, tracking)
        finally:
            cluster.down(layout)
    return 1 if soak.problem or not all(check.passed for check in checks) else 0


def show(soak: Soak, checks: list[Check]) -> None:
    """Print both tables."""
    print(f"\n{'at [s]':>7}  {'event':11} {'what':28} {'att.':>4} {'iter.':>7} {'cause':13} {'back [s]':>8}  by itself")
    causes = {attempt.number: attempt.cause for attempt in jobs.read(soak.run.run)}
    for event in soak.events:
        back = "" if event.back_s is None else f"{event.back_s:.1f}"
        itself = {True: "yes", False: "resumed", None: ""}[event.by_itself]
        print(
            f"{event.at_s:7.0f}  {event.name:11} {event.what:28} {event.attempt:4} {event.iteration:7} "
            f"{causes.get(event.attempt) or '-':13} {back:>8}  {itself}"
        )
    print()
    for check in checks:
        print(f"{'ok' if check.passed else 'FAILED':7} {check.what:48} {check.found}")
    for line in dict.fromkeys(([soak.problem] if soak.problem else []) + soak.run.said):
        print(line)
    sys.stdout.flush()


def keep(soak: Soak, folder: Path | None) -> None:
    """Copy what a failed soak leaves, logs and all, to where it can be looked at."""
    import shutil

    target = folder or Path(tempfile.mkdtemp(prefix="hpclab-soak-failed-"))
    shutil.copytree(soak.run.run.path, target / "run", symlinks=True, dirs_exist_ok=True)
    shutil.copytree(soak.run.layout.log, target / "log", dirs_exist_ok=True)
    print(f"kept: {target}")


def write(soak: Soak, checks: list[Check], seed: int, options: argparse.Namespace, tracking: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    attempts = [
        {"number": a.number, "cause": a.cause, "first_iteration": a.first_iteration, "last_iteration": a.last_iteration}
        for a in jobs.read(soak.run.run)
    ]
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "minutes": options.minutes,
        "seed": seed,
        "workers": f"2 x {options.workers}",
        "tracking": tracking,
        "python": platform.python_version(),
        "events": [dataclasses.asdict(event) for event in soak.events],
        "attempts": attempts,
        "checks": [dataclasses.asdict(check) for check in checks],
    }
    path = RESULTS / f"soak-{options.minutes:g}min-seed{seed}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {path}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--minutes", type=float, default=30.0, help="how long events go on (default: %(default)s)")
    top.add_argument("--seed", type=int, help="of the events; random when not given")
    top.add_argument("--workers", type=int, default=1, help="CPU workers of each node (default: %(default)s)")
    top.add_argument("--linuxproc", action="store_true", help="signals reach every process of a job, not its tasks")
    top.add_argument("--keep", type=Path, help="where a failed soak's run folder goes (default: a new folder)")
    return top


if __name__ == "__main__":
    sys.exit(main())
