"""The code of a run, frozen when it is submitted: a copy of the checkout that this package is imported from.

What git tracks and what it neither tracks nor ignores is copied into `<run>/code`, submodules included. The job imports
from there, so editing the checkout changes nothing for a job that waits, runs, or is requeued.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from hpclab.errors import ConfigError

_SOURCE_TREE = Path(__file__).parents[2]
_PACKAGE = "hpclab/__init__.py"
_LIMIT_MB = 200
_NUM_NAMED = 3


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of a checkout that make up its code."""

    tree: Path
    files: tuple[str, ...]
    """Relative to `tree`, sorted."""

    def frozen_path(self, path: Path, code: Path) -> Path:
        """Return where a file will be in the snapshot `code`, or the file's own path when it is no part of it."""
        absolute = path.absolute()
        if absolute.is_relative_to(self.tree) and str(absolute.relative_to(self.tree)) in set(self.files):
            return code / absolute.relative_to(self.tree)
        return path


def find_checkout(*, without: Path | None = None) -> Checkout | str:
    """Return the checkout of this package, or in words why there is none: it is then installed by itself.

    Args:
        without: a folder whose files are left out, the one that holds runs.

    Raises:
        ConfigError: git cannot list the files of a checkout.
    """
    tree = _SOURCE_TREE
    if not any((folder / ".git").exists() for folder in (tree, *tree.parents)):
        return "hpclab is an installed package, not a checkout"
    if shutil.which("git") is None:
        return "there is no git here to list the files of the checkout"
    left_out = without if without is not None and not tree.is_relative_to(without) else None
    files = sorted(
        name
        for name in set(_listed(tree, PurePath()))
        if left_out is None or not (tree / name).is_relative_to(left_out)
    )
    if _PACKAGE not in files:  # for example in a virtual environment inside another project
        return "hpclab is an installed package, not a checkout"
    return Checkout(tree, tuple(files))


def check_size(checkout: Checkout) -> None:
    """Check that a copy is small.

    Raises:
        ConfigError: it is not; the biggest files are named.
    """
    sizes = {name: (checkout.tree / name).lstat().st_size for name in checkout.files}
    total = sum(sizes.values()) / 1e6
    if total > _LIMIT_MB:
        biggest = sorted(sizes, key=lambda name: -sizes[name])[:_NUM_NAMED]
        named = ", ".join(f"{name} ({sizes[name] / 1e6:.0f} MB)" for name in biggest)
        raise ConfigError(
            f"{checkout.tree}: a snapshot of the code would take {total:.0f} MB, more than {_LIMIT_MB}; biggest: "
            f"{named}. Add what is no code to .gitignore, or submit with --no-snapshot"
        )


def write_snapshot(checkout: Checkout, code: Path) -> None:
    """Copy a checkout to `code`, in place of an earlier snapshot; readers see the old one or the whole new one.

    Raises:
        ConfigError: a file cannot be read or written.
    """
    for stale in code.parent.glob(f".{code.name}.*"):  # of a submission that was killed
        shutil.rmtree(stale, ignore_errors=True)
    copy = Path(tempfile.mkdtemp(dir=code.parent, prefix=f".{code.name}.new."))
    try:
        copy.chmod(code.parent.stat().st_mode & 0o777)
        for name in checkout.files:
            _copy(checkout, name, copy / name)
        if code.exists():
            aside = Path(tempfile.mkdtemp(dir=code.parent, prefix=f".{code.name}.old."))
            code.rename(aside / code.name)
            copy.rename(code)
            shutil.rmtree(aside)
        else:
            copy.rename(code)
    except OSError as error:
        shutil.rmtree(copy, ignore_errors=True)
        raise ConfigError(f"the code cannot be copied to {code}: {error}; --no-snapshot skips it") from error


def _listed(tree: Path, below: PurePath) -> Iterator[str]:
    """Yield the files under tree/below, that of submodules and of repositories inside it too."""
    folder = tree / below
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=os.environ | {"LC_ALL": "C"})
    if done.returncode != 0:
        words = os.fsdecode(done.stderr).strip().splitlines()
        raise ConfigError(
            f"{folder}: its files cannot be listed, so the code cannot be frozen: "
            f"{words[0] if words else 'git failed'}; --no-snapshot skips it"
        )
    for raw in done.stdout.split(b"\0"):
        name = below / os.fsdecode(raw)
        path = tree / name
        if path.is_symlink() or path.is_file():  # a tracked file may have been removed
            yield str(name)
        elif raw and path.is_dir() and (path / ".git").exists():
            yield from _listed(tree, name)


def _copy(checkout: Checkout, name: str, target: Path) -> None:
    source = checkout.tree / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_symlink():
        shutil.copy2(source, target)
        return
    # A link to what is in the snapshot stays inside it, however it was written; any other goes on to lead outside.
    pointed = Path(os.path.normpath(source.parent / source.readlink()))
    inside = str(pointed.relative_to(checkout.tree)) if pointed.is_relative_to(checkout.tree) else None
    if inside is not None and any(file == inside or file.startswith(f"{inside}/") for file in checkout.files):
        target.symlink_to(os.path.relpath(pointed, source.parent))
    else:
        target.symlink_to(pointed)
