"""Replay recordings of reference systems through the engine and print the worst error by key.

    python tools/check_oracle.py FILE...

Exit code 0: every error within its tolerance. 1: at least one above it. 2: a file is unreadable, or of a format that
this version does not replay.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.oracles.report import Error, UnsupportedFormatError, format_table

CHECKS = {
    "ppo": "tools.oracles.ppo",
    "distillation": "tools.oracles.distillation",
    "trace": "tools.oracles.velocity_trace",
}
"""By the recording's `algorithm`: the module whose `check(path)` replays it."""


def check(path: Path) -> dict[str, Error]:
    """Replay one file and return the worst error by key.

    Raises:
        UnsupportedFormatError: the file is unreadable, or not of a format that is replayed.
    """
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            name = next((name for name in file.files if name.split("/")[-1] == "meta"), None)
            if name is None:
                raise UnsupportedFormatError("recordings without a 'meta' entry are not replayed by this version")
            meta = json.loads(str(file[name]))
        algorithm = str(meta["algorithm"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UnsupportedFormatError(f"cannot be read as a recording: {error}") from error
    if algorithm not in CHECKS:
        raise UnsupportedFormatError(f"recordings of '{algorithm}' are not replayed by this version")
    try:
        errors: dict[str, Error] = importlib.import_module(CHECKS[algorithm]).check(path)
    except (KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UnsupportedFormatError(f"is not a complete recording: {error}") from error
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every file and return the exit code, the highest of all files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    code = 0
    for path in parser.parse_args(arguments).files:
        try:
            errors = check(path)
        except UnsupportedFormatError as error:
            print(f"{path}: {error}", file=sys.stderr)
            code = 2
            continue
        failed = sum(not error.ok for error in errors.values())
        print(f"{path}: {f'{failed} of {len(errors)} keys above their tolerance' if failed else 'ok'}")
        print(format_table(errors))
        code = max(code, 1 if failed else 0)
    return code


if __name__ == "__main__":
    sys.exit(main())
