"""Recurrent networks: what a policy remembers of its environments, and how sequences of them are learned from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpclab.config.models import RecurrentSection
from hpclab.errors import CheckpointError

State = tuple[Tensor, ...]
"""What is remembered, (L, N, H) each for L layers and N environments: a GRU's hidden state; an LSTM's and its cell's.

Empty for a network that remembers nothing.
"""


class History(NamedTuple):
    """What a recurrent network needs beside T observations of B environments to go through them again."""

    state: State
    """Before the first step."""
    dones: Tensor
    """(T, B) bool, the episode ended at the step: the next one starts from nothing."""


class Memory(nn.Module):
    """An LSTM or GRU that forgets an environment at the end of its episode."""

    def __init__(self, config: RecurrentSection, num_inputs: int) -> None:
        super().__init__()
        kind = nn.LSTM if config.type == "lstm" else nn.GRU
        self.rnn = kind(num_inputs, config.hidden_dim, config.num_layers)
        self._tensors = 2 if config.type == "lstm" else 1

    def start(self, num_envs: int, device: torch.device) -> State:
        """Return the state of environments that have seen nothing."""
        shape = (self.rnn.num_layers, num_envs, self.rnn.hidden_size)
        return tuple(torch.zeros(shape, device=device) for _ in range(self._tensors))

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Take one step of (N, D) inputs; return (N, H) features and the state after it."""
        features, after = self.rnn(inputs.unsqueeze(0), state if self._tensors == 2 else state[0])
        return features.squeeze(0), after if self._tensors == 2 else (after,)

    def unroll(self, inputs: Tensor, history: History) -> tuple[Tensor, State]:
        """Return (T, B, H) features of (T, B, D) inputs, and the state after them.

        Step by step, from nothing after the end of an episode.
        The shapes never depend on where episodes end, and the features are those of trajectories that are cut there
        and padded.
        """
        # A mini-batch's part of several layers is scattered, which cuDNN does not read.
        state: State = tuple(tensor.contiguous() for tensor in history.state)
        features = []
        for step, ended in zip(inputs, history.dones.unsqueeze(-1), strict=True):
            feature, state = self(step, state)
            features.append(feature)
            state = forget(state, ended)
        return torch.stack(features), state


def forget(state: State, ended: Tensor) -> State:
    """Return `state` with zeros where `ended`, (N, 1) bool."""
    return tuple(tensor.masked_fill(ended, 0.0) for tensor in state)


def restore(live: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Let the tensors that hold what is remembered take the values of those saved.

    Raises:
        CheckpointError: they were saved of other networks or of another number of environments.
    """
    own, other = ({name: tuple(tensor.shape) for name, tensor in tensors.items()} for tensors in (live, saved))
    if own != other:
        raise CheckpointError(f"what is remembered of environments has shapes {other} in the checkpoint, {own} here")
    for name, tensor in live.items():
        tensor.copy_(saved[name])
