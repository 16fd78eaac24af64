"""Which checkpoints of a run stay when a new one has been written. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from hpclab.checkpoint import folder as disk
from hpclab.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Retention:
    """The newest `last` stay, and with them every one at a multiple of `every` and the best by the metric `best`."""

    last: int | None = None
    """Checkpoints; None keeps all."""
    every: int | None = None
    """Iterations."""
    best: str | None = None
    """Log tag; the checkpoint with the highest value stays, of equal ones the newer."""

    def doomed(self, checkpoints: Path, newest: int) -> list[int]:
        """Return the iterations whose checkpoints go, newest first.

        Args:
            checkpoints: folder of a run's checkpoints.
            newest: iteration of the one just written. Later ones were damaged when the run went on from before them:
                they take no place of those that are whole.
        """
        if self.last is None:
            return []
        found = [iteration for iteration in disk.iterations(checkpoints) if iteration <= newest]
        candidates = [
            iteration for iteration in found[self.last :] if self.every is None or iteration % self.every != 0
        ]
        if self.best is not None and candidates:
            best = best_iteration(checkpoints, self.best, newest)
            candidates = [iteration for iteration in candidates if iteration != best]
        return candidates

    def prune(self, checkpoints: Path, newest: int) -> None:
        """Remove the checkpoints that do not stay; see `doomed`.

        Raises:
            OSError: one could not be removed.
        """
        for iteration in self.doomed(checkpoints, newest):
            disk.remove(checkpoints, iteration)


def best_iteration(checkpoints: Path, metric: str, newest: float = math.inf) -> int | None:
    """Return the iteration up to `newest` whose checkpoint has the highest `metric`, None where none has a value."""
    best, highest = None, -math.inf
    for iteration in disk.iterations(checkpoints):
        if iteration > newest:
            continue
        try:
            value = disk.read_manifest(checkpoints / disk.folder_name(iteration)).metrics.get(metric)
        except CheckpointError:
            continue
        if value is not None and value > highest:
            best, highest = iteration, value
    return best
