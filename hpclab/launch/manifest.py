"""run.json: what a run is, where its code comes from, and how it was started last."""

from __future__ import annotations

import functools
import json
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpclab.errors import ConfigError
from hpclab.run_folder import RunFolder, write_atomic
from hpclab.versions import versions


def read_manifest(run: RunFolder) -> dict[str, Any]:
    """Return run.json.

    Raises:
        ConfigError: the folder holds no run.
    """
    try:
        manifest = json.loads(run.manifest.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{run.path}: holds no run (no {run.manifest.name} in it); name a run's folder: `hpclab status` lists them"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run.manifest}: cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise ConfigError(f"{run.manifest}: must hold one JSON object")
    return manifest


def write_manifest(
    run: RunFolder, launch: Mapping[str, Any], *, code_kept: bool = False, sweep: Mapping[str, Any] | None = None
) -> None:
    """Write run.json; the id and the creation time of a run that exists stay.

    Args:
        run: its folder exists.
        launch: how the run is started, for `hpclab resume`.
        code_kept: the commit on record stays, because its snapshot is what runs.
        sweep: the sweep that it belongs to; what is on record stays when not given.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    new: dict[str, Any] = {"id": uuid.uuid4().hex[:12], "created": now}
    manifest = read_manifest(run) if run.manifest.exists() else new
    if not code_kept:
        manifest["git_commit"] = _git_commit()
    if sweep is not None:
        manifest["sweep"] = dict(sweep)
    manifest |= {"versions": versions(), "launch": dict(launch)}
    write_atomic(run.manifest, json.dumps(manifest, indent=1) + "\n")


@functools.cache  # a sweep writes many
def _git_commit() -> str | None:
    """Return the commit of this package's source tree, with '+' when files differ from it; None outside git."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
