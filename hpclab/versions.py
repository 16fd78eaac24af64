"""Which versions of Python and of the packages that training depends on are installed."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

from hpclab import __version__

PACKAGES = ("torch", "mujoco", "mujoco-warp", "warp-lang", "numpy", "submitit", "torchrunx")


@functools.cache  # a sweep writes many records, a run many checkpoints
def installed(name: str) -> str | None:
    """Return a package's version without importing it; None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return what a record holds: by name, without what is not installed."""
    found = {name: version for name in PACKAGES if (version := installed(name)) is not None}
    return {"python": platform.python_version(), "hpclab": __version__, **found}
