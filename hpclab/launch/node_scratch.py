"""The user's folder on a node's own disk, and in it a temporary folder for each agent and its ranks.

What they leave there goes with them: torchrunx's agent makes a folder for the output of its ranks and never removes it.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from hpclab.errors import ConfigError
from hpclab.launch.private import private_folder

OWN_TMPDIR = "HPCLAB_TMPDIR"
"""The same as TMPDIR, where that is the folder of one agent and its ranks alone."""
_PREFIX = "tmp-"
_SCRATCH = ("SLURM_TMPDIR", "TMPDIR")


def own_folder(variables: Mapping[str, str]) -> Path:
    """Return the user's folder on this node, which is made when it is not there.

    Raises:
        ConfigError: somebody else made it, or it cannot be made.
    """
    scratch = next((variables[name] for name in _SCRATCH if variables.get(name)), "/tmp")
    # Others can write to /tmp too: what they made in our name is not loaded into our processes.
    return private_folder(Path(scratch) / f"hpclab-{_user()}")


@contextmanager
def temporary_folder(variables: MutableMapping[str, str]) -> Iterator[None]:
    """Let TMPDIR be a folder that is new, and removed after the block; also remove those of launches that were killed.

    A lock tells a killed one: it ends with the process that removes the folder, however that ends. Where no folder can
    be made, TMPDIR stays and the reason is printed.

    Args:
        variables: of the agent that is started inside the block; changed.
    """
    made = None
    try:
        made = _make(own_folder(variables))
        variables["TMPDIR"] = variables[OWN_TMPDIR] = str(made[0])
    except (ConfigError, OSError) as error:
        print(f"temporary files stay where those of others are: {error}", flush=True)
    try:
        yield
    finally:
        if made is not None:
            path, lock = made
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _make(folder: Path) -> tuple[Path, int]:
    """Return a new folder and the descriptor that holds its lock, after removing what has no owner any more."""
    turn = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)  # one that is new must not look abandoned until it is locked
        for path in folder.glob(f"{_PREFIX}*"):
            _remove_abandoned(path)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path, lock
    finally:
        os.close(turn)


def _remove_abandoned(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # its owner has just removed it
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for this user id in a container
        return str(os.geteuid())
