"""Watch the memory of a training run from outside: of its process, and of the GPU that it has to itself."""

from __future__ import annotations

import statistics
import subprocess
import time
from typing import Any

import psutil

from hpclab.metrics.jsonl import read_last
from hpclab.run_folder import RunFolder

_KEPT = 200
_MIB = 2**20


class MemoryWatch:
    """Samples of a run, one for every call."""

    def __init__(self, gpu: int | None) -> None:
        """Take the index of the GPU to watch, in nvidia-smi's count; None: none."""
        self._gpu = gpu
        self._began = time.monotonic()
        self.samples: list[dict[str, float]] = []

    def __call__(self, pid: int, run: RunFolder) -> None:
        """Take a sample of process `pid`, once the run has finished an iteration."""
        last = read_last(run.metrics / "metrics.jsonl")
        if last is None:
            return
        try:
            resident = _resident_mib(pid)
        except psutil.NoSuchProcess:  # it has just ended
            return
        sample = {"time_s": round(time.monotonic() - self._began, 1), "iteration": last["iteration"]}
        sample["resident_mib"] = round(resident, 1)
        if self._gpu is not None:
            sample["device_mib"] = _device_mib(self._gpu)
        self.samples.append(sample)

    def summary(self) -> dict[str, Any]:
        """Return by how much memory grew from the second quarter of the samples to the last, and the samples."""
        found: dict[str, Any] = {"samples": self.samples[:: max(1, len(self.samples) // _KEPT)]}
        quarter = len(self.samples) // 4
        if quarter == 0:
            return found | {"error": f"{len(self.samples)} samples are too few: let it train for longer"}
        early, late = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        for key in ("resident_mib", "device_mib"):
            if key in late[0]:
                start, end = (statistics.median(sample[key] for sample in part) for part in (early, late))
                found |= {key: end, f"{key}_growth": round(end - start, 1)}
        return found | {"iterations": self.samples[-1]["iteration"] + 1}


def _resident_mib(pid: int) -> float:
    """Resident memory of a process and its descendants."""
    process = psutil.Process(pid)
    total = 0
    for member in (process, *process.children(recursive=True)):
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / _MIB


def _device_mib(gpu: int) -> float:
    command = ["nvidia-smi", f"--id={gpu}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
