"""Replays one recording on several gloo ranks, one process for each recorded rank."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpclab.distributed.collectives import Collectives, process_group
from tools.oracles.report import Error

TIMEOUT_S = 120.0

Arrays = dict[str, np.ndarray]
Replay = Callable[[dict[str, Any], Arrays, Collectives], list[Error]]
"""Replays one rank, given the recording's settings and arrays; a function of a module, so that it can be sent."""


def replay(path: Path, function: Replay) -> list[Error]:
    """Replay every rank of a recording, a single one in this process.

    Raises:
        RuntimeError: a rank failed; with its traceback.
    """
    meta, arrays = load(path)
    if int(meta["world"]) == 1:
        return function(meta, arrays, Collectives())
    return _replay_on_ranks(path, function, int(meta["world"]))


def load(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return a recording's settings and arrays."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays["rank0/meta"])), arrays


@dataclass(frozen=True, slots=True)
class _Rank:
    rank: int
    world_size: int
    master_addr: str
    master_port: int


def _replay_rank(context: _Rank, path: Path, function: Replay, results: Path) -> None:
    """Replay one rank in its own process and leave its errors, or a traceback, in `results`."""
    try:
        torch.set_num_threads(1)
        meta, arrays = load(path)
        with process_group(context, device=torch.device("cpu"), timeout_s=TIMEOUT_S) as collectives:
            errors = function(meta, arrays, collectives)
        answer: dict[str, Any] = {"errors": [[e.key, e.worst, e.p95, e.tolerance, bool(e.ok)] for e in errors]}
    except Exception:
        answer = {"traceback": traceback.format_exc()}
    (results / f"{context.rank}.json").write_text(json.dumps(answer))


def _replay_on_ranks(path: Path, function: Replay, world_size: int) -> list[Error]:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, _environment(OMP_NUM_THREADS="1"):
        results, port = Path(folder), _free_port()
        contexts = [_Rank(rank, world_size, "127.0.0.1", port) for rank in range(world_size)]
        ranks = [
            spawn.Process(target=_replay_rank, args=(context, path, function, results), daemon=True)
            for context in contexts
        ]
        try:
            for process in ranks:
                process.start()
            for process in ranks:
                process.join(TIMEOUT_S)
        finally:
            for process in ranks:
                process.kill()
                process.join()
        errors: list[Error] = []
        for rank in range(world_size):
            file = results / f"{rank}.json"
            answer = json.loads(file.read_text()) if file.exists() else {"traceback": "it ended without an answer"}
            if "traceback" in answer:
                raise RuntimeError(f"rank {rank} failed: {answer['traceback']}")
            errors += [Error(*row) for row in answer["errors"]]
    return errors


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
