"""The folder that all nodes share, and the folder for compiled kernels."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpclab.launch.doctor.finding import Finding, error, ok, warning
from hpclab.launch.kernel_cache import VARIABLE
from hpclab.run_folder import existing_part, sync_folder, takes_entries, write_atomic

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "cephfs",
        "ceph",
        "fuse.ceph",
        "wekafs",
        "panfs",
        "pvfs2",
        "cifs",
        "smb3",
    }
)
_SLOW_FSYNC_S = 1.0
_MEGABYTE = 1 << 20
_LOW_SPACE_GB = 10.0
_MIN_SPACE_GB = 1.0


def check_folder(folder: Path) -> Iterator[Finding]:
    """Do in a folder what a run does: write, replace and lock files, and flush them to disk."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".hpclab-doctor-", dir=existing))
    except OSError as problem:
        yield error("run folder", f"{existing}: {problem.strerror}", "set run.root to a folder that you may write")
        return
    try:
        yield _exercise(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    free = shutil.disk_usage(existing).free / 1e9
    text = f"{free:.0f} GB free"
    if free < _MIN_SPACE_GB:
        yield error("disk space", text, "make room, or set run.root to another disk")
    elif free < _LOW_SPACE_GB:
        yield warning("disk space", text, "set run.keep_last, so that old checkpoints are removed")
    else:
        yield ok("disk space", text)


def _exercise(scratch: Path, folder: Path) -> Finding:
    path = scratch / "file"
    try:
        start = time.monotonic()
        write_atomic(path, b"0" * _MEGABYTE)
        sync_folder(scratch)
        seconds = time.monotonic() - start
        write_atomic(path, b"1")  # replaces it
        if path.read_bytes() != b"1":
            return error("run folder", f"{folder}: a renamed file shows its old content", "use another file system")
        (scratch / "draft").write_bytes(b"")
        os.link(scratch / "draft", scratch / "lock")
        try:
            os.link(scratch / "draft", scratch / "lock")
        except FileExistsError:
            pass
        else:
            return error("run folder", f"{folder}: two processes could hold one lock", "use another file system")
    except OSError as problem:
        text = f"{folder}: {problem.strerror} ({problem})"
        return error("run folder", text, "set run.root to a folder where files can be written, renamed and linked")
    text = (
        f"{folder} ({file_system(scratch)}): write, rename and lock work; 1 MB is on disk after {seconds * 1e3:.0f} ms"
    )
    if seconds > _SLOW_FSYNC_S:
        return warning("run folder", text, "a slow disk delays checkpoints: raise run.save_interval or change run.root")
    return ok("run folder", text)


def check_kernel_cache(variables: Mapping[str, str] = os.environ, *, submits: bool = False) -> Finding:
    """Check where compiled simulation kernels go: many ranks compile at once, so not into a shared folder.

    Args:
        variables: of a worker, or of this machine.
        submits: jobs are started from here; they keep kernels on the node unless the user says otherwise.
    """
    if submits and VARIABLE not in variables:
        return ok("kernel cache", "each node's own scratch, in a job")
    path = kernel_cache(variables)
    existing = existing_part(path)
    if not takes_entries(existing):
        return error("kernel cache", f"{path}: not writable", "set WARP_CACHE_PATH in slurm/setup.sh")
    kind = file_system(existing)
    if kind in NETWORK_FILE_SYSTEMS:
        return warning(
            "kernel cache",
            f"{path} is on a network file system ({kind})",
            'export WARP_CACHE_PATH="$SLURM_TMPDIR/warp", or another folder on local disk, in slurm/setup.sh',
        )
    return ok("kernel cache", f"{path} ({kind})")


def kernel_cache(variables: Mapping[str, str] = os.environ) -> Path:
    """Return where warp puts its compiled kernels."""
    base = variables.get(VARIABLE)
    return Path(base).expanduser() if base else Path(variables.get("HOME", "/tmp")) / ".cache" / "warp"


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the kind of file system that a path is on; `unknown` where the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    best, kind = -1, "unknown"
    resolved = path.resolve()
    for fields in (line.split() for line in lines):
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if resolved.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind
