"""Values held back by a number of calls that is drawn for each environment and episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import Tracker

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


class Past(Tracker):
    """The latest values, newest last; at an episode's start all of them are its first one.

    Attributes:
        values: (N, length, width), a buffer of the environment.
    """

    def __init__(self, env: ManagerEnv, name: str, length: int, width: int) -> None:
        self.values = env.buffers.per_env(name, length, width)
        # part of a checkpoint: what is pushed in the substeps of a control step sees a reset only in the next one
        self._fresh = env.buffers.per_env(f"{name}/fresh", dtype=torch.bool)
        env.follow(self)

    def reset(self, mask: Tensor) -> None:
        """Begin anew in environments of `mask` (N,), with the next values."""
        self._fresh |= mask

    def push(self, values: Tensor) -> None:
        """Append (N, width) values."""
        newest = values.unsqueeze(1)
        shifted = torch.cat([self.values[:, 1:], newest], dim=1)
        torch.where(self._fresh[:, None, None], newest, shifted, out=self.values)
        self._fresh.zero_()


class DelayLine(Past):
    """Gives back each environment's value of some calls ago.

    Attributes:
        delay: (N,) int64 calls, drawn anew at the start of an episode.
    """

    def __init__(self, env: ManagerEnv, name: str, bounds: tuple[int, int], width: int) -> None:
        """Draw delays within `bounds`, both included."""
        self._bounds = bounds
        self.delay = env.buffers.per_env(f"{name}/delay", fill=bounds[0], dtype=torch.int64)
        super().__init__(env, f"{name}/pending", bounds[1] + 1, width)

    def reset(self, mask: Tensor) -> None:
        """Draw new delays in environments of `mask` (N,), and begin with the next values."""
        super().reset(mask)
        drawn = torch.randint_like(self.delay, self._bounds[0], self._bounds[1] + 1)
        torch.where(mask, drawn, self.delay, out=self.delay)

    def __call__(self, values: Tensor) -> Tensor:
        """Take in (N, width) values and return the delayed ones."""
        self.push(values)
        place = (self._bounds[1] - self.delay)[:, None, None].expand(-1, 1, values.shape[1])
        return self.values.gather(1, place).squeeze(1)
