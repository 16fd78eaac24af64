"""One piece of work in a thread of its own. It must call no collective: those belong to the main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Starts `action` in a thread at once. It ends with the process, like a write that a kill interrupts."""

    def __init__(self, action: Callable[[], Result]) -> None:
        self._action = action
        self._result: Result
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Return whether the work has ended, well or not."""
        return not self._thread.is_alive()

    def result(self) -> Result:
        """Wait for the work and return its result.

        Raises:
            BaseException: what the work raised.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._action()
        except BaseException as error:
            self._error = error
