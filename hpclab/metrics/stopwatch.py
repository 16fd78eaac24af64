"""Where the time of an iteration goes, without making the device wait in between."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Marks moments in the device's work; read the spans between them once the device has caught up."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        """Forget earlier marks and set the first."""
        self._marks, self._events = [], []
        self.mark()

    def mark(self) -> None:
        """Set a mark after the work issued so far."""
        if self._on_cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._events.append(event)
        else:
            self._marks.append(time.perf_counter())

    def first_span_s(self) -> float:
        """Return the time between the first two marks [s]. Waits for the second, not for work issued after it."""
        if self._on_cuda:
            self._events[1].synchronize()
            return float(self._events[0].elapsed_time(self._events[1])) / 1000.0
        return self._marks[1] - self._marks[0]

    def spans_s(self) -> list[float]:
        """Return the time between consecutive marks [s]. Waits for the last mark."""
        if self._on_cuda:
            self._events[-1].synchronize()
            return [a.elapsed_time(b) / 1000.0 for a, b in zip(self._events, self._events[1:], strict=False)]
        return [b - a for a, b in zip(self._marks, self._marks[1:], strict=False)]
