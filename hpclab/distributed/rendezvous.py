"""Where processes meet: a store that listens at a port which the kernel has just given, so nobody else can have it."""

from __future__ import annotations

import datetime
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hpclab.errors import LaunchError
from hpclab.run_folder import write_atomic

_POLL_S = 0.05
_CHECK_S = 0.25


class Place(Protocol):
    """What the ranks' meeting needs to know of a rank."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def master_addr(self) -> str: ...


def listen(address: str) -> socket.socket:
    """Return a socket that listens at a free port of one address, so on its interface only."""
    return socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def serve(
    listener: socket.socket,
    address: str,
    *,
    world_size: int,
    timeout_s: float,
    check: Callable[[], None] | None = None,
) -> TCPStore:
    """Return the store of a group whose first member this is.

    Args:
        listener: of `listen`; the store takes it over.
        address: that of `listener`.
        world_size: members.
        timeout_s: for every member to come, and for each request afterwards [s].
        check: called every moment until all members have come, to raise when one never will; without it, the store is
            returned at once.

    Raises:
        torch.distributed.DistError: they did not come in time.
        Exception: what `check` raises.
    """
    port = listener.getsockname()[1]
    found: list[TCPStore] = []
    problems: list[Exception] = []

    def make() -> None:
        try:
            store = TCPStore(
                address,
                port,
                world_size,
                is_master=True,
                timeout=datetime.timedelta(seconds=timeout_s),
                wait_for_workers=check is not None,
                master_listen_fd=listener.detach(),
            )
            found.append(store)
        except Exception as problem:
            problems.append(problem)

    if check is None:
        make()
    else:
        # The wait cannot be interrupted: a member that never comes must not hold this thread.
        waiting = threading.Thread(target=make, name="rendezvous", daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(_CHECK_S)
            check()
    if problems:
        raise problems[0]
    return found[0]


def join(store: TCPStore, *, rank: int, world_size: int, timeout_s: float) -> None:
    """Make this process's default group a gloo group that meets at `store`; a collective fails after `timeout_s`."""
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=datetime.timedelta(seconds=timeout_s)
    )


def meet(path: Path, place: Place, *, timeout_s: float) -> TCPStore:
    """Return the store of the ranks: rank 0 listens and writes where into a file, the others look for it there.

    Args:
        path: on a folder that all ranks share; no file of an earlier meeting may be there.
        place: this rank, and rank 0's address as the others reach it.
        timeout_s: for rank 0 to say where, and for each request afterwards [s].

    Raises:
        LaunchError: rank 0 does not say where in time, or somebody else wrote the file.
    """
    if place.rank == 0:
        listener = listen(place.master_addr)
        port = listener.getsockname()[1]
        store = serve(listener, place.master_addr, world_size=place.world_size, timeout_s=timeout_s)
        write_atomic(path, json.dumps({"port": port}) + "\n", private=True)
        return store
    end = time.monotonic() + timeout_s
    while path.name not in os.listdir(path.parent):  # noqa: PTH208 - lists anew: NFS caches that a name is absent
        if time.monotonic() > end:
            raise LaunchError(f"{path}: rank 0 has not said within {timeout_s:.0f} s where the ranks meet")
        time.sleep(_POLL_S)
    if path.stat().st_uid != os.geteuid():
        raise LaunchError(f"{path}: somebody else wrote it; choose another run.root")
    return TCPStore(
        place.master_addr,
        int(json.loads(path.read_text())["port"]),
        place.world_size,
        is_master=False,
        timeout=datetime.timedelta(seconds=timeout_s),
        wait_for_workers=False,
    )
