"""MuJoCo's own log, which the Python package offers no way to configure."""

from __future__ import annotations

import ctypes
from pathlib import Path

import mujoco


class _LogConfig(ctypes.Structure):
    """mjLogConfig of mjtype.h."""

    _fields_ = (
        ("logto_console", ctypes.c_ubyte),
        ("logto_file", ctypes.c_ubyte),
        ("logfile", ctypes.c_char * 1024),
        ("topics", ctypes.c_int),
    )


def silence_warnings() -> None:
    """Stop MuJoCo from printing warnings and appending them to MUJOCO_LOG.TXT in the current folder.

    A diverging world warns, from any of the threads of every rank; `Sim.read_diagnostics` counts the same warnings.
    Errors are exceptions in Python and not affected. Does nothing where the library is not a file beside the package.
    """
    for library in Path(mujoco.__file__).parent.glob("libmujoco*"):
        configure = ctypes.CDLL(str(library)).mju_setLogConfig
        configure.argtypes = [_LogConfig]
        configure.restype = None
        configure(_LogConfig(logto_console=0, logto_file=0, logfile=b"MUJOCO_LOG.TXT", topics=0))
