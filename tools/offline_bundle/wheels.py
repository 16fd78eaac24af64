"""Which wheels an installation needs, where another machine's are the ones wanted; and what can be cut out of one."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OLDEST_GLIBC = 5
_ALIASES = {"x86_64": ("manylinux1", "manylinux2010", "manylinux2014"), "aarch64": ("manylinux2014",)}


class BundleError(Exception):
    """Why no bundle can be made."""


@dataclass(frozen=True, slots=True)
class Target:
    """What wheels are for."""

    python: str
    """Version, as 3.12."""
    machine: str
    """Processor, as `uname -m` says."""
    glibc: str
    """Oldest C library that must do, as 2.28."""

    def options(self) -> list[str]:
        """Return pip's options for it. pip matches a platform's name exactly, so all names that fit are listed."""
        major, _, minor = self.glibc.partition(".")
        if major != "2" or not minor.isdecimal() or not re.fullmatch(r"3\.\d+", self.python):
            raise BundleError(f"no wheels are made for Python {self.python} and glibc {self.glibc}")
        names = [f"manylinux_2_{number}" for number in range(int(minor), _OLDEST_GLIBC - 1, -1)]
        names += _ALIASES.get(self.machine, ())
        platforms = [f"--platform={name}_{self.machine}" for name in (*names, "linux")]
        abi = f"cp{self.python.replace('.', '')}"
        tags = [f"--python-version={self.python}", "--implementation=cp", f"--abi={abi}", "--abi=abi3", "--abi=none"]
        return ["--only-binary=:all:", *tags, *platforms]


def canonical(name: str) -> str:
    """Return a package's name as packages are compared. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def resolve(root: Path, extras: Sequence[str], target: Target) -> list[dict[str, Any]]:
    """Let pip find what installing `root` needs, itself and its build tools included, with its constraints.

    Returns:
        Entries of pip's report: `metadata` with name, version and requires_dist, `download_info`, ...

    Raises:
        BundleError: pip finds no set of packages.
    """
    project = str(root) + (f"[{','.join(extras)}]" if extras else "")
    tools = tomllib.loads((root / "pyproject.toml").read_text()).get("build-system", {}).get("requires", [])
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        _pip(
            *("install", "--dry-run", "--ignore-installed", f"--report={report}", f"--target={scratch}"),
            *("-c", str(root / "constraints.txt"), *target.options(), project, *tools),
        )
        return list(json.loads(report.read_text())["install"])


def needed(resolved: Sequence[dict[str, Any]], excluded: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and version of each package to bring along: all but the project, `excluded`, and what only they need.

    Raises:
        BundleError: an excluded package is not among them.
    """
    found = {canonical(one["metadata"]["name"]): one["metadata"] for one in resolved}
    if unknown := [name for name in excluded if name not in found]:
        raise BundleError(f"--exclude {' '.join(unknown)}: not among what is needed: {', '.join(sorted(found))}")
    local = {canonical(one["metadata"]["name"]) for one in resolved if "dir_info" in one.get("download_info", {})}
    asked = {canonical(one["metadata"]["name"]) for one in resolved if one.get("requested")}
    reached: set[str] = set()
    waiting = sorted(local | asked)
    while waiting:
        name = waiting.pop()
        if name in reached or name in excluded or name not in found:
            continue
        reached.add(name)
        waiting += [_required(text) for text in found[name].get("requires_dist", [])]
    return sorted((name, str(found[name]["version"])) for name in reached - local)


def _required(text: str) -> str:
    """Return the package that a requirement names; what its marker says was pip's to judge."""
    match = re.match(r"[A-Za-z0-9._-]+", text)
    return canonical(match[0]) if match else ""


def download(packages: Sequence[tuple[str, str]], folder: Path, target: Target) -> None:
    """Download exactly these wheels.

    Raises:
        BundleError: one cannot be had.
    """
    exact = [f"{name}=={version}" for name, version in packages]
    if exact:
        _pip("download", "--quiet", "--no-deps", f"--dest={folder}", *target.options(), *exact)


def drop(folder: Path, package: str, files: Sequence[str]) -> None:
    """Take files out of a package's wheel in `folder`, and out of its list of contents.

    Raises:
        BundleError: there is no such wheel, or it has no such file.
    """
    found = [path for path in folder.glob("*.whl") if canonical(path.name.split("-")[0]) == package]
    if len(found) != 1:
        raise BundleError(f"{package} is not in the bundle")
    (wheel,) = found
    thinner = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(thinner, "w", zipfile.ZIP_DEFLATED) as new:
        if missing := set(files) - set(old.namelist()):
            raise BundleError(f"{wheel.name} has no {', '.join(sorted(missing))}")
        for entry in old.infolist():
            if entry.filename in files:
                continue
            data = old.read(entry)
            if re.fullmatch(r"[^/]+\.dist-info/RECORD", entry.filename):
                rows = csv.reader(io.StringIO(data.decode()))
                kept = io.StringIO()
                csv.writer(kept, lineterminator="\n").writerows(row for row in rows if row and row[0] not in files)
                data = kept.getvalue().encode()
            new.writestr(entry, data)
    thinner.replace(wheel)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BundleError(f"pip {arguments[0]} failed:\n{done.stdout.strip()[-3000:]}")
