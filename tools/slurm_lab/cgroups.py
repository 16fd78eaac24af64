"""One private cgroup namespace per host, so that Slurm tracks processes as on a production node.

A host's processes live in <mount point>/<cluster>/<host>. Its cgroup namespace makes that folder the root of all it
sees, so slurmd works in the usual places, and the slurmd of two hosts or clusters never meet.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from slurm_lab.requirements import plugin_installed
from slurm_lab.settings import ClusterError, Layout, Tracking

MOUNT_POINTS: dict[Tracking, Path] = {
    "cgroup/v1": Path("/sys/fs/cgroup/freezer"),
    "cgroup/v2": Path("/sys/fs/cgroup"),
}
"""Where Slurm's process tracking works: v1 uses the freezer hierarchy only."""


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


def host_cgroup(layout: Layout, tracking: Tracking, host: str) -> Path | None:
    """The folder whose cgroup.procs takes the host's processes; None when Slurm does not track by cgroup."""
    if tracking == "linuxproc":
        return None
    return MOUNT_POINTS[tracking] / layout.identity / host


def mounts(tracking: Tracking) -> list[list[str]]:
    """Arguments of the `mount` calls of a host inside its cgroup namespace: its own root is then where Slurm looks."""
    if tracking == "linuxproc":
        return []
    target = str(MOUNT_POINTS[tracking])
    kind = ["-t", "cgroup", "-o", "freezer"] if tracking == "cgroup/v1" else ["-t", "cgroup2"]
    # The kernel refuses to mount a file system over itself: hence something else in between.
    return [["-t", "tmpfs", "tmpfs", target], [*kind, "cgroup", target]]


def remove_cgroups(layout: Layout, host: str | None = None) -> None:
    """Remove the cgroups of one host, or of the whole cluster, whatever kind they are; all processes have ended.

    Raises:
        ClusterError: one is still in use after 5 s.
    """
    for mount_point in MOUNT_POINTS.values():
        top = mount_point / layout.identity
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
