"""What a runner needs of an on-policy algorithm."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from hpclab.envs.vec_env import Observations, Step


class Algorithm(Protocol):
    """Collects a rollout step by step, then learns from it. Shapes: N environments of this rank, A actions."""

    @property
    def mean_std(self) -> Tensor:
        """Standard deviation of the rollout's policy, averaged over actions; 0-dimensional [action units]."""
        ...

    def broadcast_parameters(self) -> None:
        """Give every rank rank 0's models. Collective."""
        ...

    def start_rollout(self) -> None:
        """Begin a new rollout; one that was not finished is forgotten."""
        ...

    def act(self, observations: Observations) -> Tensor:
        """Return (N, A) actions for a rollout step and remember them."""
        ...

    def process_step(self, step: Step) -> None:
        """Take what the environments answered to the last `act`."""
        ...

    def finish_rollout(self, observations: Observations) -> None:
        """Compute what learning needs of the rollout; `observations` follow its last step. Collective."""
        ...

    def update(self) -> dict[str, Tensor]:
        """Learn from the rollout and return 0-dimensional losses by log name. Collective."""
        ...

    def act_inference(self, observations: Observations) -> Tensor:
        """Return the (N, A) actions that the policy holds best; nothing is remembered."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that learning continues from, bit for bit, between two iterations."""
        ...

    def shared_state_dict(self) -> dict[str, Any]:
        """The part of `state_dict` that is equal on all ranks, bit for bit, by the run's `sync` settings."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointError: the state is of other models.
        """
        ...

    def memory_state_dict(self) -> dict[str, Tensor]:
        """What recurrent networks remember of this rank's environments, which are dimension 1, by name."""
        ...

    def load_memory_state_dict(self, state: dict[str, Tensor]) -> None:
        """Remember what a `memory_state_dict` of as many environments holds.

        Raises:
            CheckpointError: it is of other networks or another number of environments.
        """
        ...
