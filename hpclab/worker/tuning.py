"""How fast one size of a run trains on one device, and how much of its contact buffers it needs.

Nothing here imports torch, so that the process that measures can choose its device first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpclab.config.schema import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

_WARM_UP_ITERATIONS = 4
"""Iterations that compile and capture, and let caches warm up."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One size of a run; medians over iterations."""

    num_envs: int
    steps_per_s: float
    """Environment steps per second of rollout, returns and update."""
    collect_s: float
    learn_s: float
    device_gib: float | None = None
    """Memory of the GPU that is in use, by others too [GiB]."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Most constraint rows of a world (njmax), and contacts per world on average (nconmax), also those that did not
    fit; of the GPU backend alone."""
    warnings: Mapping[str, float] = field(default_factory=dict)
    """What the simulation reported, by name: an overflow of either buffer among it."""


def measure(config: RunConfig, device: str, iterations: int) -> Measured:
    """Train some iterations in this process, which must not have used a GPU before.

    Args:
        config: the run, of the size to measure.
        device: "cpu", or one entry for CUDA_VISIBLE_DEVICES.
        iterations: how many to measure.

    Raises:
        ConfigError: the task or the size cannot be.
        RuntimeError: the device's memory is too small, among others.
    """
    on_cpu = device == "cpu"
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if on_cpu else device

    import torch

    from hpclab.metrics import record as tags
    from hpclab.metrics.record import Record
    from hpclab.metrics.reporter import Reporter
    from hpclab.worker.trial import trial

    class Keep:
        """A sink that keeps the records."""

        def __init__(self) -> None:
            self.records: list[Record] = []

        def write(self, record: Record) -> None:
            self.records.append(record)

        def close(self) -> None:
            """Nothing is open."""

    threads = config.env.threads or len(os.sched_getaffinity(0))
    with trial(config, device=torch.device("cpu" if on_cpu else "cuda:0"), threads=threads) as runner:
        peaks, warnings = watch_loads(runner.env), watch_warnings(runner.env)
        sink = Keep()
        reporter = Reporter([sink])
        for _ in range(_WARM_UP_ITERATIONS + iterations):
            runner.iterate(reporter)
        device_gib = None
        if not on_cpu:
            free, total = torch.cuda.mem_get_info()
            device_gib = (total - free) / 2**30
        values = [record.values for record in sink.records[_WARM_UP_ITERATIONS:]]
        return Measured(
            num_envs=config.env.num_envs,
            steps_per_s=_median([value[tags.TOTAL_FPS] for value in values]),
            collect_s=_median([value[tags.COLLECTION_TIME] for value in values]),
            learn_s=_median([value[tags.LEARNING_TIME] for value in values]),
            device_gib=device_gib,
            peaks=peaks(),
            warnings={name: float(count) for name, count in warnings.items() if count},
        )


def watch_loads(env: Any) -> Callable[[], dict[str, int]]:
    """Follow the largest loads of the simulation's buffers, at the last substep of every control step.

    Returns:
        What reads them: `njmax` in rows of one world, `nconmax` in contacts per world; nothing on the CPU backend.
    """
    import torch

    loads = getattr(env.sim, "loads", None)
    if loads is None:
        return dict
    peaks: dict[str, Tensor] = {name: torch.zeros_like(load) for name, load in loads().items()}
    step = env.sim.step

    def step_and_look(*arguments: Any, **options: Any) -> None:
        step(*arguments, **options)
        for name, load in loads().items():
            torch.maximum(peaks[name], load, out=peaks[name])

    env.sim.step = step_and_look

    def read() -> dict[str, int]:
        contacts = int(max(peaks["contacts"].max(), peaks["pairs"].max()))
        return {"njmax": int(peaks["rows"].max()), "nconmax": -(-contacts // env.num_envs)}

    return read


def watch_warnings(env: Any) -> Counter[str]:
    """Return a counter that grows by what the simulation reports from now on."""
    seen: Counter[str] = Counter()  # of tensors, where the simulation counts on a device
    read = env.read_diagnostics

    def read_and_count() -> dict[str, Tensor | int]:
        counts: dict[str, Tensor | int] = read()
        seen.update(counts)
        return counts

    env.read_diagnostics = read_and_count
    return seen


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
