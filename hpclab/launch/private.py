"""What only the user may read or write: pickles that jobs run, handover files with the environment, locks."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from hpclab.errors import ConfigError


def private_folder(path: Path) -> Path:
    """Create a folder, with those above it, that only the user can enter; close an open one of the user's own.

    Raises:
        ConfigError: it belongs to somebody else, is a link, or cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be created: {error.strerror}; choose another run.root") from error
    refuse_others(path)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
    return path


def refuse_others(path: Path) -> None:
    """Check that a file or folder was made by the user who runs this.

    Raises:
        ConfigError: somebody else made it, or it is a link, which may lead anywhere.
        FileNotFoundError: it is not there.
    """
    if path.is_symlink():
        raise ConfigError(f"{path}: is a link, where only a file or folder of your own is trusted; remove it")
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise ConfigError(
            f"{path}: belongs to {_user(owner)}, and what another user wrote is not trusted; choose another run.name"
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
