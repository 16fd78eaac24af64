"""Small runs for tests: a run folder, one attempt on one or more ranks, and what it left."""

import json
import os
import unittest.mock
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hpclab.config.load import dump_config
from hpclab.config.schema import RunConfig
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import Outcome, WorkerSpec
from tests.distributed.ranks import TestContext, run_on_ranks

_TIMES = ("total_fps", "collection_time", "learning_time", "wait_min", "wait_median", "wait_max", "slowest_rank")
UNREPEATABLE = ("time", "attempt", *(f"Perf/{name}" for name in _TIMES))


def small_config(**sections: dict[str, Any]) -> RunConfig:
    """A cart-pole of eight environments; `sections` change keys of sections."""
    base: dict[str, dict[str, Any]] = {
        "run": {"max_iterations": 4, "save_interval": 100},
        "env": {"num_envs": 8, "threads": 1},
        "algorithm": {"num_steps_per_env": 8, "num_learning_epochs": 2, "num_mini_batches": 2},
        "actor": {"hidden_dims": [16]},
        "critic": {"hidden_dims": [16]},
        "metrics": {"tensorboard": False},
    }
    if sections.get("algorithm", {}).get("name", "ppo") != "ppo":
        del base["algorithm"]["num_mini_batches"]
    merged = {name: base.get(name, {}) | sections.get(name, {}) for name in base.keys() | sections.keys()}
    return RunConfig.model_validate({"task": "cartpole-balance", "seed": 3} | merged)


def write_config(folder: Path, config: RunConfig) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    run = RunFolder(folder)
    run.config.write_text(dump_config(config))
    return run


def attempt(run: RunFolder, number: int = 0) -> Outcome:
    """Train in this process, as one rank."""
    with unittest.mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # set already, it decides; test machines are busy
        torch.set_num_threads(1)
        return run_worker(WorkerSpec(str(run.path), number, ("cpu",), console=False), WorkerContext.single())


def attempt_on_ranks(run: RunFolder, world_size: int, number: int = 0) -> list[Outcome]:
    """Train on gloo ranks, each in a process of its own."""
    spec = WorkerSpec(str(run.path), number, ("cpu",) * world_size, console=False)

    def work(context: TestContext) -> Outcome:
        place = WorkerContext(
            context.rank, context.rank, world_size, world_size, context.master_addr, context.master_port
        )
        return run_worker(spec, place)

    return run_on_ranks(work, world_size, join_group=False)


def curve(run: RunFolder, *, without: Sequence[str] = UNREPEATABLE) -> list[dict[str, Any]]:
    lines = read_curve(run.metrics / "metrics.jsonl")
    return [{tag: value for tag, value in line.items() if tag not in without} for line in lines]


def checkpoint_files(run: RunFolder, iteration: int) -> dict[str, Any]:
    """Every loaded file of a checkpoint, by name."""
    folder = run.checkpoints / f"iter-{iteration:06d}"
    manifest = json.loads((folder / "manifest.json").read_text())
    return {name: torch.load(folder / name, weights_only=True) for name in manifest["files"]}


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Paths at which two nested states differ in any bit, on whatever devices they are."""
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return [f"{path}: keys"]
        return [found for key in one for found in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{path}: length"]
        pairs = enumerate(zip(one, other, strict=True))
        return [found for index, (a, b) in pairs for found in differences(a, b, f"{path}/{index}")]
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return [] if same and one.cpu().numpy().tobytes() == other.cpu().numpy().tobytes() else [path]
    return [] if one == other else [path]
