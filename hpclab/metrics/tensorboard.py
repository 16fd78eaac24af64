"""TensorBoard event files, under the tags that users of RSL-RL know."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from hpclab.metrics.record import Record
from hpclab.run_folder import write_atomic

_PROBE_BYTES = 64 * 1024


class TensorboardSink:
    """Writes every number of an iteration as a scalar; the step is the iteration."""

    def __init__(self, folder: Path, *, first_iteration: int) -> None:
        """Open an event file in `folder`; TensorBoard then hides what earlier files say from `first_iteration` on.

        Raises:
            OSError: the file cannot be written.
        """
        self._folder = folder
        purge = first_iteration if any(folder.glob("*")) else None
        self._writer: SummaryWriter | None = SummaryWriter(str(folder), purge_step=purge, flush_secs=30)

    def write(self, record: Record) -> None:
        """Take one iteration; a writer that has failed once never writes again, so another file is then begun.

        Raises:
            OSError: the disk is full or gone.
        """
        if self._writer is None:
            _probe(self._folder)  # first: each file that is begun in vain would stay, empty
            self._writer = SummaryWriter(str(self._folder), flush_secs=30)
        try:
            for tag, value in record.values.items():
                self._writer.add_scalar(tag, value, record.iteration, walltime=record.time)
        except OSError:
            failed, self._writer = self._writer, None
            with suppress(OSError):
                failed.close()
            raise

    def close(self) -> None:
        """Write what is still held back.

        Raises:
            OSError: the disk is full or gone.
        """
        if self._writer is not None:
            self._writer.close()


def _probe(folder: Path) -> None:
    """Raise OSError where `folder` takes no file that is worth beginning."""
    file = folder / ".probe"
    write_atomic(file, bytes(_PROBE_BYTES))
    file.unlink()
