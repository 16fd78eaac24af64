"""Device work that runs the same way every time, captured once in a CUDA graph and replayed without Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import torch
from torch.profiler import record_function

from hpclab.envs.sim.uncollected import nothing_collected

_LOGGER = logging.getLogger(__name__)
_WARM_UP_CALLS = 2

Result = TypeVar("Result")


class Captured(Generic[Result]):
    """A function without arguments that never waits for the device, captured at its third call on CUDA.

    It must read and write the same memory at every call. Its result is what the capture returned: tensors whose values
    each replay renews, valid until the next call. Where capture is off or fails, it stays the plain function.
    """

    def __init__(
        self,
        function: Callable[[], Result],
        *,
        name: str,
        device: torch.device,
        enabled: bool,
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Take the function.

        Args:
            function: the device work.
            name: for the log.
            device: where it runs.
            enabled: False runs it plainly, always; so does any device but CUDA.
            guard: entered around the capture, on the capturing stream: prepares other libraries for it.
        """
        self._function = function
        self._name = name
        self._device = device
        self._enabled = enabled and device.type == "cuda"
        self._guard = guard
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result

    def __call__(self) -> Result:
        """Do the work and return its result; a profiler sees it under its name."""
        if self._graph is None and self._enabled and self._calls >= _WARM_UP_CALLS:
            self._capture()
        with record_function(self._name):
            if self._graph is not None:
                self._graph.replay()
                return self._result
            self._calls += 1
            return self._function()

    def release(self) -> None:
        """Free the graph, and with it the collectives that it holds; later calls run plainly."""
        if self._graph is not None:
            torch.cuda.synchronize(self._device)
        self._graph = None
        self._enabled = False

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        caller = torch.cuda.current_stream(self._device)
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with nothing_collected():
            try:
                with (
                    torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
                    self._guard(),
                ):
                    self._result = self._function()
            except RuntimeError as error:
                self._enabled = False
                torch.cuda.set_stream(caller)
                torch.cuda.synchronize(self._device)
                _end_generator_capture(self._device)
                _LOGGER.warning("%s cannot be captured in a CUDA graph and runs without one: %s", self._name, error)
                return
        self._graph = graph
        _LOGGER.info("%s captured in a CUDA graph", self._name)


def _end_generator_capture(device: torch.device) -> None:
    """Let the device's generator draw outside of graphs again, as only a capture that succeeds does."""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        torch.zeros(1, device=device)
