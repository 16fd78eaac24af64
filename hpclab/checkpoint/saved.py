"""A checkpoint that a command was asked about, with the settings of its run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.inspect import find
from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import CheckpointError, ConfigError
from hpclab.run_folder import RunFolder


def check_output(output: Path | None) -> None:
    """Check that a file can be written at the place that a user has named.

    Raises:
        ConfigError: there is a folder, or a device or pipe, which would be replaced.
    """
    if output is not None and output.exists() and not output.is_file():
        what = "a folder; name a file in it" if output.is_dir() else "no regular file; name another"
        raise ConfigError(f"--output {output}: is {what}")


@dataclass(frozen=True, slots=True)
class Saved:
    """A whole checkpoint of a run. Finding it needs no torch; reading it does."""

    folder: Path
    run: RunFolder
    config: RunConfig

    @classmethod
    def find(cls, path: Path) -> Saved:
        """Return the checkpoint that `path` is, or the newest one where it is a run.

        Raises:
            ConfigError: there is no such checkpoint, it is in no run's folder, or the run's config cannot be used.
            CheckpointError: it is damaged.
        """
        folder = find(path)[0]
        disk.verify(folder)
        run = RunFolder(folder.parent.parent)
        if not run.config.exists():
            raise ConfigError(f"{folder}: is in no run's folder, so its settings are not known")
        return cls(folder, run, load_config(run.config))

    def read(self) -> dict[str, Any]:
        """Return what ranks share: the algorithm's state, the task's progress and the counters.

        Raises:
            CheckpointError: it cannot be read.
        """
        from hpclab.checkpoint.state import from_bytes  # torch, which costs seconds

        file = self.folder / disk.SHARED_FILE
        try:
            data = file.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
        return from_bytes(data, str(file))
