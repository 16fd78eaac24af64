"""The layout of a run folder, and the one way to write a file that matters.

<run>/config.yaml  run.json  jobs.jsonl  lock  cancel
      code/  submitit/  logs/attempt-00/{launcher.log,rank-0000.log,error-0000.json,meeting.json,stop}
      checkpoints/iter-000050/...  checkpoints/latest
      metrics/{metrics.jsonl,save_time.json,tensorboard/}  export/
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names every file of one run. It touches nothing: callers create what they write."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Return the run at a path as a user gives it: absolute, and without `..`, which no run can be named.

        Raises:
            OSError: the path is relative, and the working folder is gone.
        """
        absolute = path.absolute()
        return cls(Path(os.path.realpath(absolute)) if ".." in absolute.parts else absolute)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def argument(self) -> str:
        """The run as a shell takes it, in commands that messages name."""
        return shlex.quote(str(self.path))

    @property
    def config(self) -> Path:
        """The resolved configuration: what every attempt trains from."""
        return self.path / "config.yaml"

    @property
    def manifest(self) -> Path:
        """run.json: id, creation time, git commit, versions."""
        return self.path / "run.json"

    @property
    def jobs(self) -> Path:
        """jobs.jsonl: one line when an attempt starts and one when it ends."""
        return self.path / "jobs.jsonl"

    @property
    def lock(self) -> Path:
        """Held by the owner of a live run."""
        return self.path / "lock"

    @property
    def cancel_request(self) -> Path:
        """Its presence says that a user ended the run: no attempt may requeue it. `hpclab resume` removes it."""
        return self.path / "cancel"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def submitit(self) -> Path:
        return self.path / "submitit"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics"

    @property
    def export(self) -> Path:
        """What other programs read: policy.onnx, model_49.pt."""
        return self.path / "export"

    @property
    def save_time(self) -> Path:
        """JSON with `save_s`: how long the last checkpoint took [s], for those who must tell a job to stop in time."""
        return self.metrics / "save_time.json"

    def logs(self, attempt: int) -> Path:
        return self.path / "logs" / f"attempt-{attempt:02d}"

    def launcher_log(self, attempt: int) -> Path:
        return self.logs(attempt) / "launcher.log"

    def rank_log(self, attempt: int, rank: int) -> Path:
        return self.logs(attempt) / f"rank-{rank:04d}.log"

    def rank_error(self, attempt: int, rank: int) -> Path:
        """Written by a rank that fails: JSON with time, host, rank, error and traceback."""
        return self.logs(attempt) / f"error-{rank:04d}.json"

    def out_of_memory(self, attempt: int, host: str) -> Path:
        """Written by a node on which the kernel has killed a process of the run for lack of memory."""
        return self.logs(attempt) / f"out-of-memory-{host}"

    def meeting(self, attempt: int) -> Path:
        """Where rank 0 says at which port the ranks of this attempt meet."""
        return self.logs(attempt) / "meeting.json"

    def stop_file(self, attempt: int) -> Path:
        """Its presence asks all ranks of this attempt to save and stop at the same iteration."""
        return self.logs(attempt) / "stop"


def write_atomic(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write `content` so that readers see the old file or the whole new one, also after a power cut.

    Args:
        path: in a folder that exists.
        content: text is written as UTF-8.
        private: only the user may read it; else the umask decides.

    Raises:
        OSError: the folder is missing, not writable, or full; the old file is then untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with errors_named(path), os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk, so that a rename inside it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with errors_named(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Let an error say of which file it is: that of a write does not know."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def existing_part(path: Path) -> Path:
    """Return a path, or the nearest folder above it that is there."""
    return next(part for part in (path, *path.parents) if part.exists())


def takes_entries(folder: Path) -> bool:
    """Whether files can be made in a folder: it is one, and its rights let us."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
