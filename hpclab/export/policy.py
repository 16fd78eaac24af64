"""The policy of a checkpoint as one network, from raw observations to mean actions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hpclab.config.algorithms import DistillationSection
from hpclab.config.schema import RunConfig
from hpclab.errors import CheckpointError, ConfigError
from hpclab.models.actor_critic import Actor
from hpclab.models.memory import State


class Policy(nn.Module):
    """An actor without exploration; what it remembers goes in and comes out with every call.

    Attributes:
        num_observations, num_actions: D and A.
        inputs, outputs: names of what `forward` takes and returns.
    """

    def __init__(self, actor: Actor, num_observations: int, num_actions: int) -> None:
        super().__init__()
        self.actor = actor
        self.num_observations, self.num_actions = num_observations, num_actions
        remembered = ("h", "c")[: len(self.start(1))]
        self.inputs = ("obs", *(f"{name}_in" for name in remembered))
        self.outputs = ("actions", *(f"{name}_out" for name in remembered))
        self.eval()  # an image's batch normalisation then uses running statistics, as in rollouts

    def start(self, num_envs: int) -> State:
        """Return what is remembered at the start of an episode, (L, N, H) zeros for each; nothing without a memory."""
        return self.actor.start_state(num_envs, torch.device("cpu"))

    def signature(self) -> str:
        """Return names and shapes of inputs and outputs."""
        shapes = [f"({tensor.shape[0]}, N, {tensor.shape[2]})" for tensor in self.start(1)]
        sides = ((self.inputs, self.num_observations), (self.outputs, self.num_actions))
        return " -> ".join(
            ", ".join(f"{name} {shape}" for name, shape in zip(names, (f"(N, {width})", *shapes), strict=True))
            for names, width in sides
        )

    def forward(self, observations: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Return the (N, A) mean actions for (N, D) observations, and what is remembered after them.

        Args:
            observations: raw, not normalised.
            state: as returned before, or what `start` returns.
        """
        outputs, after = self.actor.step(observations, state)
        distribution = self.actor.distribution
        return (distribution.mean(distribution(outputs)), *after)


def observation_group(config: RunConfig) -> str:
    """Return the observation group that a run's policy sees."""
    return config.algorithm.student_group if isinstance(config.algorithm, DistillationSection) else "actor"


def load_policy(shared: dict[str, Any], config: RunConfig, num_observations: int, num_actions: int) -> Policy:
    """Return the policy of a checkpoint's shared state, on the CPU; that of a distillation is the student.

    Raises:
        CheckpointError: the state holds no policy.
        ConfigError: it is another network than the config and the task now ask for.
    """
    actor = Actor(config.actor, num_observations, num_actions)
    try:
        state = shared["algorithm"]["actor"]
    except KeyError as missing:
        raise CheckpointError(f"the checkpoint holds no policy: {missing} is missing") from missing
    try:
        actor.load_state_dict(state)
    except RuntimeError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(
            f"the saved policy is not one of {num_observations} observations and {num_actions} actions, as "
            f"{config.task} has here: {problem}"
        ) from error
    return Policy(actor, num_observations, num_actions)
