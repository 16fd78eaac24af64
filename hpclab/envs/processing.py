"""What happens to an observation between the term and the network: noise, clip, scale, delay and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import ObservationTerm, Tracker

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


class Processed(Tracker):
    """An observation term with everything that its settings ask for, in this order; see `ObservationTerm`.

    At the start of an episode the delay is drawn and the past is filled with the first observation.
    """

    def __init__(self, env: ManagerEnv, name: str, term: ObservationTerm) -> None:
        """Bind the term and make its buffers, called `observations/{name}/...`."""
        self._term = term.bind(env)
        self._noise, self._clip, self._scale = term.noise, term.clip, term.scale
        self._history = term.history
        self._fresh = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        width = self._term().shape[1]
        self._shortest, self._longest = term.delay
        self._pending: Tensor | None = None
        if self._longest > 0:
            self._pending = env.buffers.per_env(f"observations/{name}/pending", self._longest + 1, width)
            self._delay = env.buffers.per_env(f"observations/{name}/delay", dtype=torch.int64)
        self._past: Tensor | None = None
        if term.history > 1:
            self._past = env.buffers.per_env(f"observations/{name}/past", term.history, width)
        env.follow(self)

    def reset(self, mask: Tensor) -> None:
        """Begin anew in environments of `mask` (N,), with the next observation."""
        self._fresh |= mask

    def __call__(self) -> Tensor:
        """Return (N, dim) values, or (N, history * dim) from the oldest to the newest."""
        values: Tensor = self._term()
        if self._noise > 0:
            values = values + torch.empty_like(values).uniform_(-self._noise, self._noise)
        if self._clip is not None:
            values = values.clamp(*self._clip)
        if self._scale != 1.0:
            values = values * self._scale
        if self._pending is not None:
            drawn = torch.randint_like(self._delay, self._shortest, self._longest + 1)
            torch.where(self._fresh, drawn, self._delay, out=self._delay)
            _push(self._pending, values, self._fresh)
            place = (self._longest - self._delay)[:, None, None].expand(-1, 1, values.shape[1])
            values = self._pending.gather(1, place).squeeze(1)
        if self._past is not None:
            _push(self._past, values, self._fresh)
            values = self._past.flatten(1)
        self._fresh.zero_()
        return values


def _push(past: Tensor, values: Tensor, fresh: Tensor) -> None:
    """Append (N, dim) values to the (N, length, dim) past, newest last; all of it becomes them where `fresh`."""
    newest = values.unsqueeze(1)
    shifted = torch.cat([past[:, 1:], newest], dim=1)
    torch.where(fresh[:, None, None], newest, shifted, out=past)
