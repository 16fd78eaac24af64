"""Everything of one rank that a checkpoint holds: taken together between two iterations, and put back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from hpclab.algorithms.algorithm import Algorithm
from hpclab.checkpoint.dealing import place
from hpclab.checkpoint.state import (
    apply_difference,
    capture_random_streams,
    difference,
    restore_random_streams,
)
from hpclab.checkpoint.store import Checkpoint
from hpclab.config.schema import RunConfig
from hpclab.distributed.audit import fingerprints
from hpclab.distributed.collectives import Collectives
from hpclab.distributed.seeds import start_streams
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
    config: RunConfig

    def capture(self, counters: dict[str, int]) -> States:
        """Return the live state, for ranks to share and of this rank alone where that is kept. Collective."""
        sharded = self.config.sync.resolved().checkpoint == "sharded"
        if not sharded and self.collectives.rank != 0:
            return None, None
        state = self.algorithm.state_dict()
        shard: dict[str, Any] = {
            "environment": self.env.state_dict(),
            "episodes": self.episodes.state_dict(),
            "memory": self.algorithm.memory_state_dict(),
            "random_streams": capture_random_streams(self.env.device),
            "algorithm_difference": [],
        }
        if sharded and self.collectives.world_size > 1:
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
        if checkpoint is None or not checkpoint.exact:
            if checkpoint is not None:
                self.env.load_progress_state_dict(checkpoint.shared["progress"])
            self.env.reset()
            self.env.read_episode_totals()  # the reset itself ended no episode
        if checkpoint is None:
            self.algorithm.broadcast_parameters()
            return
        state, shard = checkpoint.shared["algorithm"], checkpoint.shard
        if shard is not None:
            apply_difference(state, shard["algorithm_difference"])
        self.algorithm.load_state_dict(state)
        if checkpoint.exact:
            assert shard is not None, "a rank of an exact checkpoint has a shard"
            self.env.load_state_dict(shard["environment"])
            self.episodes.load_state_dict(shard["episodes"])
            self.algorithm.load_memory_state_dict(shard.get("memory", {}))
        else:
            self._deal(checkpoint)
        if shard is not None:
            restore_random_streams(shard["random_streams"], self.env.device)
        else:
            start_streams(self.config, self.collectives.rank, checkpoint.iteration)
        note = "exactly where it was" if checkpoint.exact else self._describe(checkpoint)
        _LOGGER.info("continuing from %s with iteration %d: %s", checkpoint.name, checkpoint.iteration, note)

    def _deal(self, checkpoint: Checkpoint) -> None:
        """Let saved environments continue here as far as they go; the others have just been reset."""
        if not checkpoint.pieces:
            return
        environment, episodes = self.env.state_dict(), self.episodes.state_dict()
        episodes = {name: tensor.clone() for name, tensor in episodes.items()}
        memory = {name: tensor.clone() for name, tensor in self.algorithm.memory_state_dict().items()}
        for piece, shard in checkpoint.pieces:
            place(environment, shard["environment"], piece, shared=checkpoint.shared["progress"])
            saved, own = slice(piece.first, piece.first + piece.count), slice(piece.at, piece.at + piece.count)
            episodes["running"][:, own] = shard["episodes"]["running"][:, saved].to(self.env.device)
            for name, tensor in memory.items():
                tensor[:, own] = shard["memory"][name][:, saved].to(self.env.device)
        if checkpoint.shard is not None:
            kept = checkpoint.shard["episodes"]
            episodes |= {"ring": kept["ring"], "ended": kept["ended"]}
        self.env.load_state_dict(environment)
        self.episodes.load_state_dict(episodes)
        self.algorithm.load_memory_state_dict(memory)

    def _describe(self, checkpoint: Checkpoint) -> str:
        rank, saved, shards = self.collectives.rank, checkpoint.world_size, len(checkpoint.dealing.saved)
        if checkpoint.shard is not None:
            own = f"normalisers where local, random streams and recent episodes are rank {rank}'s as saved"
        else:
            own = "normalisers where local are rank 0's, random streams and the record of recent episodes are new"
        by = "it was imported" if shards == 0 else f"{saved} {'rank' if saved == 1 else 'ranks'} saved it"
        if 0 < shards < saved:
            by += " and only rank 0's own state is in it (sync.checkpoint)"
        return (
            f"{by}, {self.collectives.world_size} go on. Parameters, "
            f"optimiser, learning rate and counters are exact; {own}; {checkpoint.dealing.describe(rank)}"
        )
