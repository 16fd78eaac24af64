"""The GPUs of this machine and their driver."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

from hpclab.launch.doctor.finding import Finding, error, not_here, ok

_QUERY = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_TORCH = "import torch; print(torch.cuda.device_count(), torch.version.cuda)"


def check_gpus() -> Iterator[Finding]:
    """List the GPUs, and check that torch sees them."""
    if shutil.which("nvidia-smi") is None:
        yield not_here("GPUs", "no nvidia-smi here; a login node needs none, and --nodes looks at the nodes")
        return
    found, problem = query()
    if problem:
        yield error("GPUs", f"nvidia-smi failed: {problem}", "have the driver loaded: see nvidia-smi and dmesg")
        return
    if not found:
        yield not_here("GPUs", "nvidia-smi finds none here")
        return
    kinds = {one: found.count(one) for one in dict.fromkeys(found)}
    yield ok("GPUs", "; ".join(f"{count} x {one}" for one, count in kinds.items()))
    yield _torch(len(found))


def query() -> tuple[list[str], str]:
    """Return `name, driver, memory` of every GPU here, and what went wrong, empty when nothing did."""
    if shutil.which("nvidia-smi") is None:
        return [], ""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return [], str(problem)
    if done.returncode != 0:
        return [], " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
    return [line.strip() for line in done.stdout.splitlines() if line.strip()], ""


def _torch(present: int) -> Finding:
    # In a process of its own: it may take long, and opens a context on the GPUs.
    try:
        done = subprocess.run([sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=180)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return error("torch on GPUs", str(problem), "see whether python -c 'import torch' ends")
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return error("torch on GPUs", last, "reinstall torch: tools/install.sh")
    count, cuda = words
    if int(count) == 0:
        text = f"torch (CUDA {cuda}) sees none of {present} GPUs"
        return error("torch on GPUs", text, "install a torch for this driver's CUDA, or see CUDA_VISIBLE_DEVICES")
    return ok("torch on GPUs", f"{count} seen, CUDA {cuda}")
