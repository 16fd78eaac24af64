"""What happens to an observation between the term and the network: noise, clip, scale, delay and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.delay import DelayLine, Past
from hpclab.envs.spec import ObservationTerm

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


class Processed:
    """An observation term with everything that its settings ask for, in this order; see `ObservationTerm`.

    At the start of an episode the delay is drawn and the past is filled with the first observation.
    """

    def __init__(self, env: ManagerEnv, name: str, term: ObservationTerm) -> None:
        """Bind the term and make its buffers, called `observations/{name}/...`."""
        self._term = term.bind(env)
        self._noise, self._clip, self._scale = term.noise, term.clip, term.scale
        width = self._term().shape[1]
        buffers = f"observations/{name}"
        self._delay = DelayLine(env, buffers, term.delay, width) if term.delay[1] > 0 else None
        self._past = Past(env, f"{buffers}/past", term.history, width) if term.history > 1 else None

    def __call__(self) -> Tensor:
        """Return (N, dim) values, or (N, history * dim) from the oldest to the newest."""
        values: Tensor = self._term()
        if self._noise > 0:
            values = values + torch.empty_like(values).uniform_(-self._noise, self._noise)
        if self._clip is not None:
            values = values.clamp(*self._clip)
        if self._scale != 1.0:
            values = values * self._scale
        if self._delay is not None:
            values = self._delay(values)
        if self._past is not None:
            self._past.push(values)
            values = self._past.values.flatten(1)
        return values
