"""The interpreter and the packages that training depends on."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from hpclab.launch.doctor.finding import Finding, error, ok
from hpclab.versions import PACKAGES, installed

_MIN_PYTHON = (3, 11)


def check_software() -> Iterator[Finding]:
    """Compare what is installed with what hpclab asks for."""
    python = platform.python_version()
    if sys.version_info < _MIN_PYTHON:
        yield error("python", f"{python} ({sys.executable})", "use Python 3.11 or newer: tools/run makes .venv with it")
    else:
        yield ok("python", f"{python} ({sys.executable})")
    wanted = _requirements()
    for name in PACKAGES:
        version = installed(name)
        asked = wanted.get(name, "")
        if version is None:
            yield error(name, "not installed", f"pip install '{name}{asked}', or start hpclab with tools/run")
        elif not _fits(version, asked):
            yield error(name, f"{version}, but hpclab needs {asked}", f"pip install '{name}{asked}'")
        else:
            yield ok(name, version)


def _requirements() -> dict[str, str]:
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("hpclab") or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return {}
    found = map(Requirement, lines)
    return {one.name: str(one.specifier) for one in found if one.marker is None or one.marker.evaluate({"extra": ""})}


def _fits(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)
