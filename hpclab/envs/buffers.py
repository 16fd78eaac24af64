"""The tensors of an environment that a checkpoint must hold."""

from __future__ import annotations

import torch
from torch import Tensor

from hpclab.errors import CheckpointError


class Buffers:
    """Named tensors, written in place only, so that saving and loading needs no word from their owners."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._num_envs = num_envs
        self._device = device
        self._tensors: dict[str, Tensor] = {}
        self._shared: list[str] = []

    def per_env(self, name: str, *shape: int, dtype: torch.dtype = torch.float32, fill: float = 0.0) -> Tensor:
        """Make the buffer `name`, (N, *shape)."""
        return self._make(name, (self._num_envs, *shape), dtype, fill)

    def shared(self, name: str, *shape: int, dtype: torch.dtype = torch.float32, fill: float = 0.0) -> Tensor:
        """Make the buffer `name`, of the given shape, that all environments share."""
        self._shared.append(name)
        return self._make(name, shape, dtype, fill)

    def _make(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, fill: float) -> Tensor:
        assert name not in self._tensors, f"two buffers are called {name}"
        self._tensors[name] = torch.full(shape, fill, dtype=dtype, device=self._device)
        return self._tensors[name]

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of every buffer by name, on the CPU."""
        return {name: tensor.to("cpu", copy=True) for name, tensor in self._tensors.items()}

    def shared_state_dict(self) -> dict[str, Tensor]:
        """Return a copy of every buffer that all environments share."""
        return {name: self._tensors[name].clone() for name in self._shared}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Write every buffer in place.

        Raises:
            CheckpointError: names, shapes or types differ.
        """
        self._load(state, self._tensors)

    def load_shared_state_dict(self, state: dict[str, Tensor]) -> None:
        """Write every buffer that all environments share, in place.

        Raises:
            CheckpointError: names, shapes or types differ.
        """
        self._load(state, {name: self._tensors[name] for name in self._shared})

    @staticmethod
    def _load(state: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        if differing := state.keys() ^ tensors.keys():
            raise CheckpointError(f"environment state: {sorted(differing)} in only one of checkpoint and task")
        for name, tensor in tensors.items():
            saved = state[name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                raise CheckpointError(
                    f"environment state: {name} is {saved.dtype} {tuple(saved.shape)} in the checkpoint, "
                    f"{tensor.dtype} {tuple(tensor.shape)} in the task"
                )
        for name, tensor in tensors.items():
            tensor.copy_(state[name])
