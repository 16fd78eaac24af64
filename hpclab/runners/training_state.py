"""Everything of one rank that a checkpoint holds: taken together between two iterations, and put back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from hpclab.algorithms.algorithm import Algorithm
from hpclab.checkpoint.state import (
    apply_difference,
    capture_random_streams,
    difference,
    restore_random_streams,
)
from hpclab.checkpoint.store import Checkpoint
from hpclab.distributed.audit import fingerprints
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import VecEnv
from hpclab.metrics.episodes import EpisodeTracker
from hpclab.runners.saving import States

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The parts of one rank whose state is saved."""

    env: VecEnv
    algorithm: Algorithm
    episodes: EpisodeTracker
    collectives: Collectives

    def capture(self, counters: dict[str, int]) -> States:
        """Return the live state, for ranks to share and of this rank alone. Collective."""
        state = self.algorithm.state_dict()
        shard: dict[str, Any] = {
            "environment": self.env.state_dict(),
            "episodes": self.episodes.state_dict(),
            "random_streams": capture_random_streams(self.env.device),
            "algorithm_difference": [],
        }
        if self.collectives.world_size > 1:
            reference = self.collectives.broadcast(fingerprints(state, self.env.device))
            shard["algorithm_difference"] = difference(state, reference)
        if self.collectives.rank != 0:
            return None, shard
        return {"algorithm": state, "progress": self.env.progress_state_dict(), "counters": counters}, shard

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Continue from `checkpoint`, or start a new run where there is none. Collective.

        Raises:
            CheckpointError: it is of another task or other models.
        """
        if checkpoint is None or checkpoint.shard is None:
            if checkpoint is not None:
                self.env.load_progress_state_dict(checkpoint.shared["progress"])
            self.env.reset()
            self.env.read_episode_totals()  # the reset itself ended no episode
        if checkpoint is None:
            self.algorithm.broadcast_parameters()
            return
        state = checkpoint.shared["algorithm"]
        if checkpoint.shard is not None:
            apply_difference(state, checkpoint.shard["algorithm_difference"])
        self.algorithm.load_state_dict(state)
        if checkpoint.shard is not None:
            self.env.load_state_dict(checkpoint.shard["environment"])
            self.episodes.load_state_dict(checkpoint.shard["episodes"])
            restore_random_streams(checkpoint.shard["random_streams"], self.env.device)
        if checkpoint.exact:
            note = "exactly where it was"
        elif checkpoint.shard is not None:
            note = "this rank's environments continue; the number of ranks or environments of the run has changed"
        else:
            note = "this rank's environments start anew: the number of ranks or environments of the run has changed"
        _LOGGER.info("continuing from %s with iteration %d: %s", checkpoint.name, checkpoint.iteration, note)
