"""Which devices the workers of a node get. Found without torch: importing it costs seconds and may open contexts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpclab.errors import ConfigError

CPU = "cpu"
_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return what CUDA would see here, each as one entry for CUDA_VISIBLE_DEVICES: an index, a UUID or a MIG name.

    As CUDA does, the list ends at the first index that does not exist.
    """
    present = _num_present()
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if present == 0:
        return ()
    if listed is None:
        return tuple(str(index) for index in range(present))
    visible: list[str] = []
    for entry in (part.strip() for part in listed.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-.+", entry) or (entry.isdigit() and int(entry) >= present):
            break
        visible.append(entry)
    return tuple(visible)


def resolve(
    gpu_ids: Sequence[str] | None, num_workers: int | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return the devices of this machine's workers, by local rank.

    Args:
        gpu_ids: indices into what CUDA sees here (so relative to CUDA_VISIBLE_DEVICES) or its UUID and MIG entries;
            or ["all"]; or ["none"] for the CPU. None: the first GPU when there is one, else the CPU.
        num_workers: CPU workers; without `gpu_ids` it means the CPU.

    Raises:
        ConfigError: a GPU that does not exist, one named twice, none at all, or a number of workers that cannot be.
    """
    if num_workers is not None and num_workers < 1:
        raise ConfigError(f"--num-workers {num_workers}: must be at least 1")
    if gpu_ids is None:
        return (CPU,) * num_workers if num_workers else (visible_gpus(environment)[:1] or (CPU,))
    words = [word for argument in gpu_ids for word in argument.replace(",", " ").split()]
    if words == ["none"]:
        return (CPU,) * (num_workers or 1)
    chosen = _chosen(words, visible_gpus(environment), environment)
    if num_workers not in (None, len(chosen)):
        raise ConfigError(
            f"--num-workers {num_workers} with {len(chosen)} GPUs: each GPU has one worker; leave --num-workers out"
        )
    return chosen


def _chosen(words: list[str], visible: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, ...]:
    shown = f"--gpu-ids {' '.join(words)}"
    where = (
        "CUDA_VISIBLE_DEVICES=" + environment["CUDA_VISIBLE_DEVICES"] if "CUDA_VISIBLE_DEVICES" in environment else ""
    )
    if not words or (len(words) > 1 and {"all", "none"} & set(words)):
        raise ConfigError(f"{shown}: write GPU indices, or `all`, or `none`")
    if not visible:
        raise ConfigError(f"{shown}: no GPU is visible here{where and f' ({where})'}; use --gpu-ids none for the CPU")
    if words == ["all"]:
        return visible
    chosen = []
    for word in words:
        if word.isdecimal() and int(word) < len(visible):
            chosen.append(visible[int(word)])
        elif word in visible and not word.isdecimal():
            chosen.append(word)
        else:
            names = f"0 to {len(visible) - 1}" if len(visible) > 1 else "only 0"
            raise ConfigError(f"{shown}: there is no GPU {word}; visible here: {names}{where and f' of {where}'}")
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"{shown}: names a GPU twice; each GPU has one worker")
    return tuple(chosen)


def node_gpus(count: int, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the entries of the GPUs that Slurm gave this node's task, by local rank.

    Raises:
        ConfigError: fewer than `count`.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:  # a site that binds no devices: the node's own numbers
        return tuple(str(index) for index in range(count))
    entries = tuple(entry.strip() for entry in listed.split(",") if entry.strip())
    if len(entries) < count:
        raise ConfigError(
            f"{os.uname().nodename}: {count} workers need {count} GPUs, but CUDA_VISIBLE_DEVICES={listed!r}; "
            "lower --gpus-per-node or fix the profile's gres"
        )
    return entries[:count]


def _num_present() -> int:
    if shutil.which("nvidia-smi"):
        try:
            done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is not None and done.returncode == 0:
            return len(re.findall(r"^GPU \d+:", done.stdout, re.MULTILINE))
    return len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
