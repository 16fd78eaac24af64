#!/usr/bin/env python3
"""Measure how much symmetry brings a Go1's gait nearer to its mirror image; print a table and JSON.

    .venv/bin/python tools/benchmarks/symmetry.py FOLDER [--seeds 1 2 3] [--learn plain augmentation] [--iterations 500]
        [--limit-s 170] [--as-shipped] [--num-envs 64] [--device cpu|cuda] [--output FILE] [KEY.SUB=VALUE ...]

Trains the Go1 with and without symmetry, with the same seeds and number of samples, and takes the mirrored-gait error
of each policy (mirrored_gait.py). Runs are kept in FOLDER: one that `--limit-s` has interrupted goes on when the same
command is given again, one that is complete is only measured.

As shipped, `go1-velocity-flat` takes millions of samples to walk, which suits a GPU (`--as-shipped --device cuda
--num-envs 4096`). So that small networks find a gait on a CPU core in minutes, commands here lead ahead, nothing is
random but the start, feet in the air are worth something, and costs that keep a beginner from moving them are lower.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":  # this folder must not lead the path: its profile.py has the name of a standard module
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import dataclasses
import functools
import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from hpclab.worker.threads import limit_spinning

limit_spinning(os.environ)  # as every worker does before it loads torch

import torch
from benchmarks.mirrored_gait import Symmetrised, mirrored_gait, quiet_env
from benchmarks.report import Report, show

from hpclab.algorithms.make import algorithm_for
from hpclab.algorithms.teacher import load_teacher
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import dump_config, load_config
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.distributed.seeds import start_streams
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import load_task
from hpclab.metrics.jsonl import JsonlSink
from hpclab.metrics.reporter import Reporter
from hpclab.models.precision import set_float32_products
from hpclab.run_folder import RunFolder
from hpclab.runners.on_policy import OnPolicyRunner

_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "go1.yaml"
_SMALL = ["actor.hidden_dims=[128,64]", "critic.hidden_dims=[128,64]", "algorithm.desired_kl=0.02"]
LEARN = {
    "plain": "algorithm.symmetry=null",
    "augmentation": "algorithm.symmetry={data_augmentation: true}",
    "mirror-loss": "algorithm.symmetry={data_augmentation: false, mirror_loss_coef: 1.0}",
    "both": "algorithm.symmetry={data_augmentation: true, mirror_loss_coef: 1.0}",
}
"""What is compared."""
_SHARES = ("joint_error", "joint_error_rad", "velocity_error", "action_error")
_EACH = ("learn", "seed", "joint_error", "joint_error_rad", "joint_size_rad", "velocity_error", "action_error")
_MEANS = ("learn", "seeds", "joint_error", "joint_error_share", "velocity_error_share", "action_error_share")
_REST = ("joint_error_symmetrised", "tracking_error_m_per_s", "fallen")
"""Columns of the tables."""


def forward_task() -> TaskSpec:
    """Return the Go1's flat task as it is learned on a CPU; see the head of this file."""
    task = load_task("go1-velocity-flat")
    twist = task.commands["twist"]
    ahead = {"vx": (0.5, 1.0), "vy": (-0.3, 0.3), "standing": 0.0, "follow_heading": 0.0, "forward_only": 0.0}
    weights = {"air_time": 0.5, "action_rate_l2": -0.01, "foot_clearance": -0.2, "foot_swing_height": 0.0}
    changed = {name: dataclasses.replace(task.rewards[name], weight=weight) for name, weight in weights.items()}
    return dataclasses.replace(
        task,
        observations={
            group: {name: dataclasses.replace(term, noise=0.0) for name, term in terms.items()}
            for group, terms in task.observations.items()
        },
        commands={"twist": dataclasses.replace(twist, params={**twist.params, **ahead})},
        events={"reset_base": task.events["reset_base"]},
        curriculum={},
        rewards={**task.rewards, **changed},
    )


def train(run: RunFolder, config: RunConfig, task: TaskSpec, *, device: torch.device, deadline: float) -> bool:
    """Train a run from its newest checkpoint on; return whether it is complete, not stopped at the deadline.

    Args:
        run: where it is kept.
        config: the run.
        task: in place of the one that `config.task` names.
        device: where it trains.
        deadline: of `time.monotonic` [s].
    """
    run.path.mkdir(parents=True, exist_ok=True)
    run.config.write_text(dump_config(config))
    set_float32_products(config.algorithm.precision, device)
    start_streams(config, 0)
    alone = Collectives()
    sim = make_sim(
        task.model(),
        config.env.num_envs,
        device=device,
        num_substeps=task.decimation,
        threads=config.env.threads or 1,
        njmax=task.njmax,
        nconmax=task.nconmax,
    )
    with closing(ManagerEnv(config.task, task, sim)) as env:
        algorithm = algorithm_for(env, config, alone)
        store = CheckpointStore(run.checkpoints, alone, config_sha256="")
        runner = OnPolicyRunner(config, env, algorithm, alone, store, lambda: time.monotonic() > deadline)
        runner.resume()
        sink = JsonlSink(run.metrics / "metrics.jsonl", first_iteration=runner.iteration)
        with closing(Reporter([sink])) as reporter:
            outcome = runner.learn(reporter)
        runner.close()
    return outcome.kind == "completed"


def measure(run: RunFolder, env: ManagerEnv) -> dict[str, float]:
    """Return the errors of a run's policy in the mirror, see `mirrored_gait`, and one of a symmetric policy like it."""
    dims = env.observation_dims["actor"], env.num_actions
    actor = load_teacher(str(run.path), *dims)
    mirror = env.mirror()
    assert mirror is not None

    def policy(observations: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = actor.distribution.mean(actor(observations))
        return mean

    symmetrised = mirrored_gait(env, Symmetrised(policy, mirror))
    return {**mirrored_gait(env, policy), "joint_error_symmetrised": symmetrised["joint_error"]}


def compare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over seeds, and each error's share of the one without symmetry."""
    learned = list(dict.fromkeys(row["learn"] for row in rows))
    numbers = [key for key in rows[0] if key not in ("learn", "seed")]
    means = {
        name: {key: statistics.mean(row[key] for row in rows if row["learn"] == name) for key in numbers}
        for name in learned
    }
    shares = {
        name: {f"{key}_share": mean[key] / means["plain"][key] for key in _SHARES}
        for name, mean in means.items()
        if "plain" in means
    }
    seeds = {name: sum(row["learn"] == name for row in rows) for name in learned}
    return [{"learn": name, "seeds": seeds[name], **means[name], **shares.get(name, {})} for name in learned]


def main(arguments: list[str] | None = None) -> int:
    """Parse the options, train, measure, print; return 1 when something failed or is not complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="keeps the runs")
    parser.add_argument("overrides", nargs="*", help="key.sub=value")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--learn", nargs="+", choices=LEARN, default=["plain", "augmentation"])
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for training, over all runs")
    parser.add_argument("--as-shipped", action="store_true", help="the task with all its commands, costs and noise")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-robots", type=int, default=64, help="that are measured, beside their twins")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, help="write the JSON to this file, as it comes")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.limit_s
    device = torch.device(options.device)
    make_task: Callable[[], TaskSpec] = forward_task
    if options.as_shipped:
        make_task = functools.partial(load_task, "go1-velocity-flat")
    networks = [] if options.as_shipped else _SMALL
    settings = [*networks, f"env.num_envs={options.num_envs}", f"run.max_iterations={options.iterations}"]
    about = {"task": "as shipped" if options.as_shipped else "ahead", "iterations": options.iterations}
    report = Report(options.output, **about, num_envs=options.num_envs, overrides=options.overrides)
    rows: list[dict[str, Any]] = []
    unfinished = []
    env = quiet_env(make_task(), options.num_robots)
    for seed in options.seeds:
        for learn in options.learn:
            name = f"{learn}-{seed}"
            config = load_config(_CONFIG, [*settings, LEARN[learn], f"seed={seed}", *options.overrides])
            run = RunFolder(options.folder / name)
            if not train(run, config, make_task(), device=device, deadline=deadline):
                unfinished.append(name)
                continue
            found = report.measure(name, functools.partial(measure, run, env))
            if found is not None:
                rows.append({"learn": learn, "seed": seed, **found})
    if rows:
        report.values["means"] = means = compare(rows)
        report.write()
        for title, table, columns in (("each run", rows, _EACH), ("means", means, _MEANS)):
            show(title, [{key: row[key] for key in (*columns, *_REST) if key in row} for row in table])
    if unfinished:
        print(f"not complete: {', '.join(unfinished)}; give the same command again")
    return 1 if report.failed or unfinished else 0


if __name__ == "__main__":
    torch.set_num_threads(1)  # products this small take longer on several
    sys.exit(main())
