"""Sequences of warp launches that are captured once and then replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import warp as wp

from hpclab.envs.sim.uncollected import nothing_collected


class LaunchGraph:
    """A fixed sequence of launches: plain the first time, which compiles it; captured the second, then replayed."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self._launch = launch
        self._warm = False
        self._graph: Any = None

    def run(self, device: Any) -> None:
        """Launch on the current stream of `device`, as part of the caller's capture if one is going on."""
        if not device.is_cuda or not self._warm or device.stream.is_capturing:
            self._launch()
            self._warm = True
            return
        if self._graph is None:
            self._graph = self._capture(device)
        wp.capture_launch(self._graph, stream=device.stream)

    def drop(self) -> None:
        """Forget the graph: it holds the addresses of the arrays it was captured with."""
        self._graph = None
        self._warm = False

    def _capture(self, device: Any) -> Any:
        stream = wp.Stream(device)  # torch's current stream is often the default one, which cannot be captured
        with (
            nothing_collected(),
            wp.ScopedStream(stream, sync_enter=False, sync_exit=False),
            wp.ScopedCapture(device=device, stream=stream) as capture,
        ):
            self._launch()
        return capture.graph
