"""Who owns a run: at most one live process or Slurm job, and a dead owner never blocks the next one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import psutil

from hpclab.errors import ConfigError
from hpclab.launch import queue
from hpclab.launch.private import refuse_others
from hpclab.run_folder import RunFolder, write_atomic


@dataclass(frozen=True, slots=True)
class Owner:
    """A process on a host, or the Slurm job that a submission became."""

    host: str
    pid: int
    started: float
    """When that process started [s since the epoch]: tells it from a later one with the same id."""
    job_id: str | None = None
    since: float = 0.0

    @classmethod
    def this_process(cls) -> Owner:
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), since=time.time())

    @classmethod
    def process(cls, pid: int) -> Owner:
        return cls(socket.gethostname(), pid, psutil.Process(pid).create_time(), since=time.time())

    @classmethod
    def job(cls, job_id: str) -> Owner:
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time(), job_id, time.time())

    def is_alive(self) -> bool:
        """Say whether the owner can still write to the run; True where that cannot be found out."""
        if self.job_id is not None:
            return queue.is_queued(self.job_id) is not False
        if self.host != socket.gethostname():
            return True
        return process_is_alive(self.pid, self.started)

    def is_same(self, other: Owner) -> bool:
        """Say whether both are one Slurm job: a requeued job finds its own lock."""
        return self.job_id is not None and self.job_id == other.job_id

    def __str__(self) -> str:
        return f"Slurm job {self.job_id}" if self.job_id else f"process {self.pid} on {self.host}"


def process_is_alive(pid: int, started: float) -> bool:
    """Say whether the process that had this id at that time still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 2.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_owner(run: RunFolder) -> Owner | None:
    """Return the owner that the lock names, dead or alive; None when nobody holds it."""
    try:
        refuse_others(run.lock)
        return Owner(**json.loads(run.lock.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{run.lock}: not a lock of this program ({error}); remove it if no run uses the folder"
        ) from error


def refuse_if_owned(run: RunFolder, new: Owner) -> None:
    """Check that no live owner but `new` itself holds the run, without writing anything.

    Raises:
        ConfigError: a live owner holds it.
    """
    owner = read_owner(run)
    if owner is not None and not owner.is_same(new) and owner.is_alive():
        raise _refusal(run, owner)


def acquire(run: RunFolder, owner: Owner) -> None:
    """Take the lock, also from a dead owner.

    Raises:
        ConfigError: a live owner holds it.
    """
    draft = run.lock.with_name(f".lock.{uuid.uuid4().hex}")
    write_atomic(draft, json.dumps(asdict(owner)), private=True)
    try:
        for _ in range(10):
            try:
                os.link(draft, run.lock)  # atomic, and fails when the lock exists, over NFS too
                return
            except FileExistsError:
                _remove_if_dead(run, owner)
        raise ConfigError(f"{run.lock}: other processes keep taking this lock; try again")
    finally:
        draft.unlink()


def _remove_if_dead(run: RunFolder, new: Owner) -> None:
    owner = read_owner(run)
    if owner is None:
        return
    if not owner.is_same(new) and owner.is_alive():
        raise _refusal(run, owner)
    aside = run.lock.with_name(f".lock.{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        run.lock.rename(aside)
        # Somebody else may have replaced the dead lock in between: what was moved aside is then theirs.
        if json.loads(aside.read_text()) != asdict(owner):
            with contextlib.suppress(FileExistsError):
                os.link(aside, run.lock)
        aside.unlink()


def hand_over(run: RunFolder, owner: Owner) -> None:
    """Name a new owner for a lock that this process holds."""
    write_atomic(run.lock, json.dumps(asdict(owner)), private=True)


def take_over(run: RunFolder, job: Owner, *, submitter: Owner | None) -> None:
    """Own a run in the name of a job that begins: mostly it does already.

    Args:
        run: what it trains.
        job: the new owner.
        submitter: the process that submitted it, which may hold the lock still, or have been killed with it.

    Raises:
        ConfigError: another live owner holds it.
    """
    owner = read_owner(run)
    if owner is not None and owner == submitter:
        hand_over(run, job)
    elif owner is None or not owner.is_same(job):
        acquire(run, job)


def release(run: RunFolder) -> None:
    run.lock.unlink(missing_ok=True)


@contextlib.contextmanager
def held(run: RunFolder, owner: Owner) -> Iterator[None]:
    """Own the run for the duration of a block, or until it is handed over to another owner."""
    acquire(run, owner)
    try:
        yield
    finally:
        if owner.job_id is None and read_owner(run) == owner:  # a job holds it until it ends
            release(run)


def _refusal(run: RunFolder, owner: Owner) -> ConfigError:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(owner.since))
    hint = f"see `hpclab status {run.argument}`, end it with `hpclab cancel {run.argument}`, or choose another run.name"
    if owner.job_id is None and owner.host != socket.gethostname():
        hint += f"; if that process is gone, remove {run.lock}"
    return ConfigError(f"{run.path}: in use by {owner} since {since}; {hint}")
