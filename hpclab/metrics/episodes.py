"""Return and length of the most recent episodes, followed on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hpclab.errors import CheckpointError


class EpisodeTracker:
    """A ring of the last `window` finished episodes of this rank. Never waits for the device.

    Episodes enter in the order in which they end, and those of the same step in the order of environments.
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
    def add(self, rewards: Tensor, dones: Tensor) -> None:
        """Count T control steps: one by one would take several times as long.

        Args:
            rewards: (T, N) reward of each step.
            dones: (T, N) bool, the episode ended at that step.
        """
        steps = torch.stack([rewards, torch.ones_like(rewards)])
        sums = torch.empty_like(steps)  # after each step
        running = self._running
        for step, ended, after in zip(steps.unbind(1), dones, sums.unbind(1), strict=True):
            running = torch.add(running, step, out=after).masked_fill(ended, 0.0)
        self._running.copy_(running)
        ends = dones.flatten()
        order = ends.cumsum(0)
        # Of more endings than the ring holds only the last stay, or two would be written to one place.
        kept = ends & (order > order[-1] - self._window)
        place = torch.where(kept, (self._ended + order - 1) % self._window, self._window)
        self._ring.index_copy_(1, place, sums.flatten(1))
        self._ended += order[-1]

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
