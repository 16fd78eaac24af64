"""What may be added to PPO: the points at which an extension takes part, each doing nothing unless it is overridden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from hpclab.distributed.moments import Moments
from hpclab.envs.vec_env import Observations
from hpclab.models.distribution import Parameters
from hpclab.storage.rollout import MiniBatch, RolloutStorage


class Extension:
    """Changes rewards, samples or losses. Never waits for the device, and works in the same memory every iteration."""

    name: str
    """Its key in the saved state."""
    numbers: tuple[str, ...] = ()
    """Log names of the numbers that `loss` returns."""
    trained: tuple[nn.Module, ...] = ()
    """Networks with gradients of `loss`: averaged over ranks together with the policy's, not clipped."""
    broadcast: tuple[nn.Module, ...] = ()
    """Networks that every rank takes from rank 0 before learning begins."""

    def finish_rollout(self, storage: RolloutStorage, last: Observations) -> list[Moments]:
        """Take part before returns are computed; `last` follows the last step.

        Returns:
            This rank's moments of what is normalised by all ranks' moments; `merge` is given those of all ranks.
        """
        return []

    def columns(self, storage: RolloutStorage) -> dict[str, Tensor]:
        """Return (T, N, ...) tensors to be dealt with the samples, by name: `MiniBatch.extra`."""
        return {}

    def augment(self, batch: MiniBatch) -> MiniBatch:
        """Return the samples to learn from in place of `batch`, whose originals come first."""
        return batch

    def loss(self, batch: MiniBatch, distribution: Parameters) -> tuple[Tensor | None, list[Tensor]]:
        """Return what is added to the loss, if anything, and 0-dimensional numbers to report.

        Args:
            batch: as `augment` returned it.
            distribution: the policy of its samples.
        """
        return None, []

    def step(self) -> None:
        """Change `trained` by its gradients, after the policy took its step."""

    def merge(self, moments: Iterator[Moments]) -> None:
        """Take the moments of all ranks in, in the order of `finish_rollout`, after the update."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that learning continues from, but what is remembered of single environments."""
        return {}

    def shared_state_dict(self) -> dict[str, Any]:
        """The part of `state_dict` that is equal on all ranks, bit for bit."""
        return self.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            KeyError, RuntimeError, ValueError: the state is of another configuration.
        """

    def memory_state_dict(self) -> dict[str, Tensor]:
        """The live tensors that are remembered of single environments, which are dimension 1, by name."""
        return {}
