"""Look at something every so often, from a thread, while something else runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(look: Callable[[], bool], *, every_s: float, name: str) -> Iterator[None]:
    """Call `look` from a thread until it says that there is no more to see, at the longest while the block runs.

    Args:
        look: acts on what it sees; True ends the watch.
        every_s: pause before each look [s].
        name: of the thread.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s) and not look():
            pass

    threading.Thread(target=watch, name=name, daemon=True).start()
    try:
        yield
    finally:
        over.set()
