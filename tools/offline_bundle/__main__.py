"""Make a folder of everything that a machine without a network needs to install and run hpclab.

    python3 tools/offline_bundle OUTPUT [--python 3.12] [--machine x86_64] [--glibc 2.28] [--extra wandb]
        [--exclude torch] [--without warp-cpu] [--part-size 60M]

Runs where there is a network; needs nothing but pip, git and Python 3.11. The folder holds wheels, the source as git
has it, checksums, and `install.sh`: copy it over, then `sh OUTPUT/install.sh FOLDER`, and use FOLDER/tools/run.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from offline_bundle import parts, wheels
from offline_bundle.wheels import BundleError, Target

_ROOT = Path(__file__).resolve().parents[2]
_INSTALLER = Path(__file__).with_name("install.sh")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}

OPTIONAL = {"warp-cpu": ("warp-lang", ("warp/bin/warp-clang.so",))}
"""Parts of wheels that can be left out: the package, and the files that go. warp-cpu: warp's compiler for the CPU,
which mujoco-warp needs only to simulate there."""


def build(
    output: Path,
    *,
    root: Path,
    target: Target,
    extras: list[str],
    excluded: list[str],
    without: list[str],
    part_bytes: int | None,
) -> None:
    """Fill the new folder `output`.

    Args:
        output: must not exist.
        root: hpclab's checkout.
        target: what the bundle is for.
        extras: extras of hpclab to install too.
        excluded: packages that are there already, and with them what they alone need.
        without: names in `OPTIONAL`.
        part_bytes: files larger than this are split; None: none are.

    Raises:
        BundleError: something cannot be had; the folder is not made.
    """
    if output.exists():
        raise BundleError(f"{output} exists; name a new folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as scratch:
        folder = Path(scratch) / output.name
        (folder / "wheels").mkdir(parents=True)
        resolved = wheels.resolve(root, extras, target)
        needed = wheels.needed(resolved, excluded)
        print(f"downloading {len(needed)} packages for Python {target.python} on {target.machine}", flush=True)
        wheels.download(needed, folder / "wheels", target)
        for name in without:
            package, files = OPTIONAL[name]
            wheels.drop(folder / "wheels", package, files)
        archive = ["git", "-C", str(root), "archive", "--format=tar.gz", "--prefix=hpclab/", "HEAD"]
        _run([*archive, f"--output={folder.resolve() / 'source.tar.gz'}"])
        gone = {wheels.canonical(one["metadata"]["name"]) for one in resolved} - {name for name, _ in needed}
        (folder / "constraints.txt").write_text(_without_pins(root / "constraints.txt", gone))
        (folder / "settings").write_text(
            f"python={target.python}\nextras={','.join(extras)}\nexcluded={','.join(sorted(excluded))}\n"
        )
        (folder / "install.sh").write_bytes(_INSTALLER.read_bytes())
        parts.split_and_sum(folder, part_bytes)
        folder.rename(output)


def _without_pins(constraints: Path, packages: set[str]) -> str:
    """Return constraints without those of packages that the bundle leaves to the machine, in whatever version."""
    lines = constraints.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if wheels.canonical(line.partition("==")[0]) not in packages)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BundleError(f"{' '.join(command)}\n{done.stderr.strip()}")


def parse_size(text: str) -> int:
    """Return "60M" in bytes.

    Raises:
        argparse.ArgumentTypeError: it is no size, or too small to be one.
    """
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 60M, 500K or 1G")
    return int(found[1]) * _UNITS[found[2]]


def main(arguments: list[str] | None = None) -> int:
    """Parse the options and build; return 1 when something cannot be had."""
    parser = argparse.ArgumentParser(prog="tools/offline_bundle", description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="folder to make")
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="version, as 3.12")
    parser.add_argument("--machine", default="x86_64", help="processor, as `uname -m` says")
    parser.add_argument("--glibc", default="2.28", help="oldest C library that must do, as `ldd --version` says")
    parser.add_argument("--extra", nargs="+", default=[], help="extras of hpclab to install too")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="PACKAGE", help="what Python there has already")
    parser.add_argument("--without", nargs="+", default=[], choices=sorted(OPTIONAL), help="parts to leave out")
    parser.add_argument("--part-size", type=parse_size, metavar="60M", help="split larger files")
    options = parser.parse_args(arguments)
    try:
        build(
            options.output,
            root=_ROOT,
            target=Target(options.python, options.machine, options.glibc),
            extras=options.extra,
            excluded=[wheels.canonical(name) for name in options.exclude],
            without=options.without,
            part_bytes=options.part_size,
        )
    except BundleError as error:
        print(f"offline_bundle: {error}", file=sys.stderr)
        return 1
    files = [path for path in options.output.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 2**20
    print(
        f"{options.output}: {len(files)} files, {megabytes:.0f} MiB; there: sh {options.output.name}/install.sh FOLDER"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
