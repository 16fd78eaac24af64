"""One private cgroup namespace per host, so that Slurm tracks processes as on a production node.

A host's processes live in <mount point>/<cluster>/<host>. Its cgroup namespace makes that folder the root of all it
sees, so slurmd works in the usual places, and the slurmd of two hosts or clusters never meet.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_lab.requirements import plugin_installed
from slurm_lab.settings import ClusterError, Layout, Settings, Tracking, load_settings

MOUNT_POINTS: dict[Tracking, Path] = {
    "cgroup/v1": Path("/sys/fs/cgroup/freezer"),
    "cgroup/v2": Path("/sys/fs/cgroup"),
}
"""Where Slurm's process tracking works: v1 uses the freezer hierarchy only."""
MEMORY = Path("/sys/fs/cgroup/memory")
"""Where v1 limits memory."""


def detect_tracking(root: Path = Path("/sys/fs/cgroup")) -> Tracking:
    """The best process tracking this machine can offer: by cgroup where they may be written, else linuxproc."""
    if not plugin_installed("proctrack_cgroup"):
        return "linuxproc"
    if (root / "cgroup.controllers").exists():
        return "cgroup/v2" if _writable(root) and plugin_installed("cgroup_v2") else "linuxproc"
    if (root / "freezer" / "cgroup.procs").exists() and _writable(root / "freezer") and plugin_installed("cgroup_v1"):
        return "cgroup/v1"
    return "linuxproc"


def _writable(folder: Path) -> bool:
    # Containers often mount cgroups read-only, which access(2) does not tell root.
    probe = folder / f"hpclab-probe-{time.monotonic_ns()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def memory_cgroup(tracking: Tracking, own: Path = Path("/proc/self/cgroup")) -> str:
    """The folder below which hosts limit memory: this process's own, so that what limits it limits them too.

    Raises:
        ClusterError: Slurm cannot limit memory here.
    """
    found = re.search(r"^\d+:memory:(/.*)$", own.read_text(), re.MULTILINE)
    folder = MEMORY / found[1].lstrip("/") if found else None
    if tracking != "cgroup/v1" or folder is None or not plugin_installed("task_cgroup") or not _writable(folder):
        raise ClusterError("memory can be limited only where cgroup/v1 is used and its memory controller is writable")
    return str(folder)


def host_cgroups(layout: Layout, settings: Settings, host: str) -> list[Path]:
    """The folders whose cgroup.procs take the host's processes; none when Slurm does not use cgroups."""
    if settings.tracking == "linuxproc":
        return []
    roots = [MOUNT_POINTS[settings.tracking], *([Path(settings.memory_cgroup)] if settings.memory_cgroup else [])]
    return [root / layout.identity / host for root in roots]


def joined(folders: Sequence[Path], command: Sequence[str]) -> list[str]:
    """A command that joins cgroups before it becomes `command`."""
    if not folders:
        return list(command)
    script = 'while [ "$1" != -- ]; do echo $$ > "$1"/cgroup.procs || exit; shift; done; shift; exec "$@"'
    return ["sh", "-c", script, "sh", *map(str, folders), "--", *command]


def mounts(settings: Settings) -> list[list[str]]:
    """Arguments of the `mount` calls of a host inside its cgroup namespace: its own root is then where Slurm looks."""
    if settings.tracking == "linuxproc":
        return []
    target = str(MOUNT_POINTS[settings.tracking])
    kind = ["-t", "cgroup", "-o", "freezer"] if settings.tracking == "cgroup/v1" else ["-t", "cgroup2"]
    # The kernel refuses to mount a file system over itself: hence something else in between.
    calls = [["-t", "tmpfs", "tmpfs", target], [*kind, "cgroup", target]]
    if settings.memory_cgroup:
        calls += [["-t", "tmpfs", "tmpfs", str(MEMORY)], ["-t", "cgroup", "-o", "memory", "cgroup", str(MEMORY)]]
    return calls


def remove_cgroups(layout: Layout, host: str | None = None) -> None:
    """Remove the cgroups of one host, or of the whole cluster, whatever kind they are; all processes have ended.

    Raises:
        ClusterError: one is still in use after 5 s.
    """
    with contextlib.suppress(ClusterError):
        settings = load_settings(layout)
        if settings.memory_cgroup:
            _remove_below(Path(settings.memory_cgroup), layout, host)
    for mount_point in MOUNT_POINTS.values():
        _remove_below(mount_point, layout, host)


def _remove_below(root: Path, layout: Layout, host: str | None) -> None:
    top = root / layout.identity
    if host is not None:
        top /= host
    if top.is_dir():
        _remove_tree(top)


def _remove_tree(top: Path) -> None:
    # The kernel lets go of a cgroup a moment after its last process has ended, and tells nobody.
    deadline = time.monotonic() + 5
    while True:
        for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        try:
            top.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{top}: {error.strerror}; some process is still in it (see cgroup.procs there)"
                ) from None
        time.sleep(0.02)
