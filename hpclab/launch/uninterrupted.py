"""Keep a submission whole: Slurm has the job, and the run's lock names it, or neither."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_HELD_BACK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and TERM back while a block runs, from the programs that it starts too; they act right after it.

    From the main thread, while there is no other one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
