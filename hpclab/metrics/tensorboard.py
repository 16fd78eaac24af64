"""TensorBoard event files, under the tags that users of RSL-RL know."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from hpclab.metrics.record import Record


class TensorboardSink:
    """Writes every number of an iteration as a scalar; the step is the iteration."""

    def __init__(self, folder: Path, *, first_iteration: int) -> None:
        """Open an event file in `folder`; TensorBoard then hides what earlier files say from `first_iteration` on."""
        purge = first_iteration if any(folder.glob("*")) else None
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=30)

    def write(self, record: Record) -> None:
        for tag, value in record.values.items():
            self._writer.add_scalar(tag, value, record.iteration, walltime=record.time)

    def close(self) -> None:
        self._writer.close()
