"""Run a function on several gloo ranks of this machine, each in its own process."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from typing import Any

import cloudpickle
import torch

from hpclab.distributed.collectives import process_group

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class TestContext:
    """A rank and where the ranks meet."""

    __test__ = False
    rank: int
    world_size: int
    master_addr: str
    master_port: int


def fork_server() -> ForkServerContext:
    """Return what starts processes that have imported torch and all of a rank already: seconds saved for each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "hpclab.worker.compose"])
    return context


def run_on_ranks(
    fn: Callable[..., Any], world_size: int, *args: Any, join_group: bool = True, timeout_s: float = 120.0
) -> list[Any]:
    """Call `fn(collectives, *args)` on every rank at once and return what it returned, by rank.

    `fn` and `args` may be anything that cloudpickle takes, closures included. One thread per rank. No process is left
    behind, whatever happens.

    Args:
        fn: called with the rank's `Collectives`, or without `join_group` with its rank context.
        world_size: number of ranks.
        args: further arguments, the same on every rank.
        join_group: enter the process group first; otherwise that is up to `fn`.
        timeout_s: all ranks must have answered by then, and each collective within it [s].

    Raises:
        AssertionError: a rank raised (its traceback is in the message), died, or took too long.
    """
    server = fork_server()
    payload = cloudpickle.dumps((fn, args))
    port = free_port()
    processes: list[Any] = []
    answers: dict[Connection, int] = {}
    try:
        for rank in range(world_size):
            receiver, sender = server.Pipe(duplex=False)
            context = TestContext(rank, world_size, "127.0.0.1", port)
            process = server.Process(
                target=_run_rank, args=(context, payload, join_group, timeout_s, sender), daemon=True
            )
            process.start()
            sender.close()
            processes.append(process)
            answers[receiver] = rank
        return _collect(answers, world_size, timeout_s)
    finally:
        for process in processes:
            process.kill()
            process.join()
        for receiver in answers:
            receiver.close()


def _collect(answers: dict[Connection, int], world_size: int, timeout_s: float) -> list[Any]:
    results: dict[int, Any] = {}
    deadline = time.monotonic() + timeout_s
    while len(results) < world_size:
        waiting = [receiver for receiver, rank in answers.items() if rank not in results]
        ready = wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            missing = sorted(answers[receiver] for receiver in waiting)
            raise AssertionError(f"no answer within {timeout_s:g} s from rank {missing}")
        for receiver in ready:
            assert isinstance(receiver, Connection)
            rank = answers[receiver]
            try:
                ok, value = cloudpickle.loads(receiver.recv_bytes())
            except EOFError:
                raise AssertionError(f"rank {rank} died without an answer") from None
            if not ok:
                raise AssertionError(f"rank {rank} failed:\n{value}")
            results[rank] = value
    return [results[rank] for rank in range(world_size)]


def _run_rank(context: TestContext, payload: bytes, join_group: bool, timeout_s: float, sender: Connection) -> None:
    # The server ends with the test process, however that ends; so does then this rank.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    try:
        fn, args = cloudpickle.loads(payload)
        if join_group:
            with process_group(context, device=torch.device("cpu"), timeout_s=timeout_s) as collectives:
                answer = (True, fn(collectives, *args))
        else:
            answer = (True, fn(context, *args))
        message = cloudpickle.dumps(answer)
    except BaseException:
        message = cloudpickle.dumps((False, traceback.format_exc()))
    sender.send_bytes(message)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
