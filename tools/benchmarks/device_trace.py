"""Read a trace of torch.profiler: what the host called, what the device ran, and under which annotation."""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HOST_CALLS = {"cuda_runtime", "cuda_driver"}
_GROUPS = (
    ("collectives", re.compile(r"nccl", re.IGNORECASE)),
    ("simulation", re.compile(r"cuda_kernel_(forward|backward)|^wp_|memtile|memset_kernel|conditional")),
    ("matrix products", re.compile(r"gemm|cutlass|cublas|nvjet|xmma|gemv|splitK", re.IGNORECASE)),
    ("optimiser", re.compile(r"fused_?adam|multi_tensor", re.IGNORECASE)),
    ("random numbers", re.compile(r"distribution|philox|randperm|RadixSort|DeviceRadix", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time; microseconds, on the trace's clock."""

    name: str
    start: float
    duration: float
    correlation: int = -1
    """Ties a kernel to the host call that launched it."""

    @property
    def end(self) -> float:
        return self.start + self.duration


@dataclass(slots=True)
class Cost:
    """What was spent under one annotation, without the annotations inside it."""

    host_us: float = 0.0
    device_us: float = 0.0
    kernels: int = 0


@dataclass(slots=True)
class Trace:
    """The spans of a trace by kind."""

    annotations: list[Span] = field(default_factory=list)
    host_calls: list[Span] = field(default_factory=list)
    kernels: list[Span] = field(default_factory=list)
    copies: list[Span] = field(default_factory=list)
    operators: list[Span] = field(default_factory=list)


def read(path: Path) -> Trace:
    """Read a file that `export_chrome_trace` wrote."""
    trace = Trace()
    kinds = {
        "user_annotation": trace.annotations,
        "kernel": trace.kernels,
        "gpu_memcpy": trace.copies,
        "gpu_memset": trace.copies,
        "cpu_op": trace.operators,
    } | dict.fromkeys(_HOST_CALLS, trace.host_calls)
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in kinds:
            correlation = event.get("args", {}).get("correlation", -1)
            span = Span(event["name"], float(event["ts"]), float(event.get("dur", 0.0)), int(correlation))
            kinds[event["cat"]].append(span)
    return trace


def costs(trace: Trace) -> dict[str, Cost]:
    """Divide host and device time among annotations; each moment belongs to the innermost one."""
    timeline = _innermost(trace.annotations)
    starts = [start for start, _ in timeline]
    found: dict[str, Cost] = defaultdict(Cost)
    for (start, name), (end, _) in itertools.pairwise(timeline):
        if name is not None:
            found[name].host_us += end - start
    launched_at = {call.correlation: call.start for call in trace.host_calls}
    for work in (*trace.kernels, *trace.copies):
        # By time alone: backward passes launch from a thread of their own, while the main thread waits for them.
        index = bisect_right(starts, launched_at.get(work.correlation, work.start)) - 1
        name = timeline[index][1] if index >= 0 else None
        cost = found[name or "elsewhere"]
        cost.device_us += work.duration
        cost.kernels += 1
    return dict(found)


def _innermost(annotations: Iterable[Span]) -> list[tuple[float, str | None]]:
    """Return the moments at which the innermost annotation changes, and what it then is."""
    timeline: list[tuple[float, str | None]] = []
    stack: list[Span] = []
    for span in sorted(annotations, key=lambda span: (span.start, -span.duration)):
        while stack and stack[-1].end <= span.start:
            end = stack.pop().end
            timeline.append((end, stack[-1].name if stack else None))
        stack.append(span)
        timeline.append((span.start, span.name))
    while stack:
        end = stack.pop().end
        timeline.append((end, stack[-1].name if stack else None))
    return timeline


def host_counts(trace: Trace, iterations: int) -> dict[str, Any]:
    """Count an iteration's launches, copies and waits, and the time the host spent waiting [ms]."""
    names = Counter(call.name for call in trace.host_calls)
    waits = [call for call in trace.host_calls if "Synchronize" in call.name]
    copies = Counter(_direction(copy.name) for copy in trace.copies)

    def per_iteration(number: float) -> float:
        return round(number / iterations, 2)

    return {
        "kernels": per_iteration(len(trace.kernels)),
        "kernel_launches": per_iteration(sum(n for name, n in names.items() if "LaunchKernel" in name)),
        "graph_launches": per_iteration(sum(n for name, n in names.items() if "GraphLaunch" in name)),
        "copies": {direction: per_iteration(count) for direction, count in sorted(copies.items())},
        "host_waits": per_iteration(len(waits)),
        "host_wait_ms": per_iteration(sum(wait.duration for wait in waits) / 1000.0),
        "host_waits_by_call": {name: per_iteration(n) for name, n in Counter(wait.name for wait in waits).items()},
    }


def _direction(name: str) -> str:
    found = re.search(r"(HtoD|DtoH|DtoD|PtoP|Memset)", name)
    return found.group(1) if found else name


def busy_us(trace: Trace) -> float:
    """Return how long the device ran anything [us]."""
    total, until = 0.0, float("-inf")
    for work in sorted((*trace.kernels, *trace.copies), key=lambda span: span.start):
        total += max(0.0, work.end - max(work.start, until))
        until = max(until, work.end)
    return total


def by_name(spans: Iterable[Span], iterations: int, top: int) -> list[dict[str, Any]]:
    """Return the names with the most time, with calls and time of an iteration [ms]."""
    time_us: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for span in spans:
        time_us[_short(span.name)] += span.duration  # type: ignore[assignment]
        calls[_short(span.name)] += 1
    total = sum(time_us.values()) or 1.0
    return [
        {
            "name": name,
            "calls": round(calls[name] / iterations, 1),
            "ms": round(duration / iterations / 1000.0, 4),
            "share": round(duration / total, 4),
        }
        for name, duration in time_us.most_common(top)
    ]


def by_group(kernels: Iterable[Span], iterations: int) -> list[dict[str, Any]]:
    """Return kernels by kind: simulation, matrix products, collectives, ..."""
    grouped = (Span(_group(kernel.name), kernel.start, kernel.duration) for kernel in kernels)
    return by_name(grouped, iterations, top=len(_GROUPS) + 1)


def _group(name: str) -> str:
    return next((group for group, pattern in _GROUPS if pattern.search(name)), "other torch")


def _short(name: str) -> str:
    """Leave out what makes a kernel's name long: return type, template arguments, the hash of a warp module."""
    name = re.sub(r"_[0-9a-f]{8}_cuda_kernel_(forward|backward)$", r"", name)
    inner = re.search(r"(\w+(?:_functor|Functor\w*|_kernel_cuda|_kernel_impl)\b)", name)
    head = re.sub(r"^void ", "", name).partition("<")[0].partition("(")[0].rpartition("::")[2] or name
    return f"{head} {inner.group(1)}" if inner and inner.group(1) != head else head
