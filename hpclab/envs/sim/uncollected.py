"""While device work is captured in a CUDA graph, Python's garbage collector must not run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Enter around a capture: memory that the collector freed meanwhile would invalidate it. Collects first."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
