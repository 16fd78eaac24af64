"""`hpclab bench tune`: the number of environments that trains fastest here, and the contact buffers that it needs."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError, HpclabError, WorkerError
from hpclab.launch.detached import die_with_parent
from hpclab.launch.devices import CPU, resolve
from hpclab.worker.tuning import Measured, measure

_FIRST = {True: 16, False: 1024}
"""Where doubling starts, on the CPU and on a GPU."""
_LAST = {True: 4096, False: 131_072}
_GAIN = 1.03
"""Doubling goes on while it gains more than this in throughput."""
_NEARLY = 0.95
_MARGIN = 1.25
"""Buffers are this much larger than the peaks: those are of the first iterations, and of one substep in each control
step."""
_MULTIPLE = 8


def tune(
    config_path: Path, overrides: list[str], *, num_envs: str | None, iterations: int, gpu_ids: list[str] | None
) -> None:
    """Measure sizes one after the other, each in a process of its own, and print a table and the lines to paste.

    However it ends, what was measured until then is printed.

    Args:
        config_path: YAML file.
        overrides: `key.sub=value`.
        num_envs: sizes with commas between; None: doubled for as long as that gains throughput.
        iterations: to measure of each size.
        gpu_ids: one device; see `devices.resolve`.

    Raises:
        ConfigError: the request cannot be carried out.
        WorkerError: no size could be measured.
        KeyboardInterrupt: Ctrl-C.
    """
    load_config(config_path, overrides)  # what is wrong whatever the size is said at once
    devices = resolve(gpu_ids, None)
    if len(devices) != 1:
        raise ConfigError(f"--gpu-ids: {len(devices)} devices; name one, whose best size holds for others like it")
    device = devices[0]
    measured: list[Measured] = []
    try:
        for size in _sizes(num_envs, device == CPU, measured):
            print(f"measuring {size} environments", flush=True)
            try:
                config = load_config(config_path, [*overrides, f"env.num_envs={size}", "env.num_envs_scope=per_rank"])
                measured.append(_measure_apart(config, device, iterations))
                print(f"{size} environments: {measured[-1].steps_per_s:,.0f} steps/s", flush=True)
            except (HpclabError, RuntimeError) as error:
                print(f"{size} environments: {str(error).strip().splitlines()[-1]}", flush=True)
                if num_envs is None:
                    break  # larger ones fail too
    finally:
        if measured:
            best = max(measured, key=lambda one: one.steps_per_s)
            Console().print(table(measured, best))
            print(advice(measured, best), flush=True)
    if not measured:
        raise WorkerError("no size could be measured; see above")


def _sizes(listed: str | None, on_cpu: bool, measured: Sequence[Measured]) -> Iterator[int]:
    """Yield the sizes to measure; `measured` grows meanwhile."""
    if listed is not None:
        yield from parse_sizes(listed)
        return
    size = _FIRST[on_cpu]
    while size <= _LAST[on_cpu]:
        yield size
        speeds = [one.steps_per_s for one in measured]
        if len(speeds) > 1 and speeds[-1] < _GAIN * max(speeds[:-1]):
            return
        size *= 2


def parse_sizes(text: str) -> list[int]:
    """Return "1024,2048" as numbers.

    Raises:
        ConfigError: it is something else.
    """
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"--num-envs {text}: give numbers of environments with commas between, e.g. 1024,2048,4096")
    return [int(word) for word in words]


def _measure_apart(config: RunConfig, device: str, iterations: int) -> Measured:
    """Measure in a fresh process, so that no size inherits memory or an error of the one before.

    Raises:
        WorkerError: that process was killed.
        KeyboardInterrupt: Ctrl-C; that process is gone.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_belong_to, initargs=(os.getpid(),)) as processes:
        try:
            return processes.submit(measure, config, device, iterations).result()
        except BrokenProcessPool as error:
            raise WorkerError("the process that measured was killed; was it out of memory?") from error
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()  # the pool would wait for it
            raise


def _belong_to(parent: int) -> None:
    """Leave Ctrl-C to the process that asks, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent=parent)


def table(measured: Sequence[Measured], best: Measured) -> Table:
    """Show every size, the best one marked."""
    on_gpu = any(one.peaks for one in measured)
    shown = Table("environments", "steps/s", "of the best", "rollout [s]", "learning [s]")
    for name in ("GPU memory [GiB]", "rows of a world", "contacts per world") if on_gpu else ():
        shown.add_column(name)
    shown.add_column("simulation warnings")
    for one in measured:
        row = [str(one.num_envs), f"{one.steps_per_s:,.0f}", f"{one.steps_per_s / best.steps_per_s:.0%}"]
        row += [f"{one.collect_s:.4f}", f"{one.learn_s:.4f}"]
        if on_gpu:
            row.append("" if one.device_gib is None else f"{one.device_gib:.1f}")
            row += [str(one.peaks.get(name, "")) for name in ("njmax", "nconmax")]
        row.append(", ".join(f"{name} {count:g}" for name, count in one.warnings.items()))
        shown.add_row(*row, style="bold" if one is best else None)
    return shown


def advice(measured: Sequence[Measured], best: Measured) -> str:
    """Return the YAML lines of the best size, and what to know of them."""
    lines = ["env:", f"  num_envs: {best.num_envs}"]
    peaks = {name: max(one.peaks.get(name, 0) for one in measured) for one in measured for name in one.peaks}
    lines += [f"  {name}: {value}" for name, value in buffers(peaks).items()]
    notes = [f"# {1 - _NEARLY:.0%} slower at most: num_envs {smaller.num_envs}" for smaller in _nearly(measured, best)]
    overflowed = sorted({name for one in measured for name in one.warnings if name.endswith("overflow")})
    if overflowed:
        notes.append(f"# too small: {', '.join(overflowed)}; what found no place is counted in the peaks; tune again")
    notes.append("# num_envs also sets the batch: num_envs * num_steps_per_env samples of each rank an iteration")
    return "\n".join([*lines, *notes])


def _nearly(measured: Sequence[Measured], best: Measured) -> list[Measured]:
    """Return the smallest size that is nearly as fast as the best, unless that is the best itself."""
    fast = [one for one in measured if one.steps_per_s >= _NEARLY * best.steps_per_s]
    smallest = min(fast, key=lambda one: one.num_envs)
    return [] if smallest is best else [smallest]


def buffers(peaks: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes to give buffers whose largest loads were `peaks`."""
    return {name: _MULTIPLE * math.ceil(_MARGIN * max(1, peak) / _MULTIPLE) for name, peak in peaks.items()}
