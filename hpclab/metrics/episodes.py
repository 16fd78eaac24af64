"""Return and length of the most recent episodes, followed on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpclab.errors import CheckpointError


class EpisodeTracker:
    """A ring of the last `window` finished episodes of this rank. Never waits for the device.

    Episodes that end at the same step enter in the order of environments.
    """

    def __init__(self, num_envs: int, device: torch.device, window: int = 100) -> None:
        self._window = window
        self._running = torch.zeros(2, num_envs, device=device)
        """Return and length so far of every environment's current episode."""
        self._ring = torch.zeros(2, window + 1, device=device)
        """Return and length of finished episodes; the last column takes what is not to be kept."""
        self._ended = torch.zeros((), dtype=torch.int64, device=device)
        """Episodes ended so far."""
        self._places = torch.arange(window, device=device)

    @torch.inference_mode()
    def step(self, rewards: Tensor, dones: Tensor) -> None:
        """Count one control step.

        Args:
            rewards: (N,) reward of this step.
            dones: (N,) bool, the episode ended at this step.
        """
        self._running[0] += rewards
        self._running[1] += 1.0
        order = dones.cumsum(0)
        # Of more endings than the ring holds only the last stay, or two would be written to one place.
        kept = dones & (order > order[-1] - self._window)
        place = torch.where(kept, (self._ended + order - 1) % self._window, self._window)
        self._ring.index_copy_(1, place, self._running)
        self._ended += order[-1]
        self._running.masked_fill_(dones, 0.0)

    def totals(self) -> dict[str, Tensor]:
        """Return `count`, `return` and `length`, 0-dimensional: sums over the ring's episodes, additive over ranks."""
        sums = self._ring[:, : self._window].sum(dim=1, dtype=torch.float64)
        return {"count": self._ended.clamp(max=self._window).double(), "return": sums[0], "length": sums[1]}

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Return the lowest and the highest return in the ring, 0-dimensional; infinity and its negative of none."""
        returns, empty = self._ring[0, : self._window], self._places >= self._ended
        return returns.masked_fill(empty, torch.inf).amin(), returns.masked_fill(empty, -torch.inf).amax()

    def state_dict(self) -> dict[str, Any]:
        return {"running": self._running, "ring": self._ring, "ended": self._ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointError: it is of another number of environments or another window.
        """
        own = self.state_dict()
        for name, tensor in own.items():
            if state[name].shape != tensor.shape:
                raise CheckpointError(
                    f"episode tracker: {name} is {tuple(state[name].shape)}, not {tuple(tensor.shape)}"
                )
            tensor.copy_(state[name])
