"""Runs event terms: at startup, at resets, and at intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant
from hpclab.envs.joints import default_qpos
from hpclab.envs.spec import EventTerm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpclab.envs.manager import ManagerEnv


def nobody(mask: Tensor) -> bool:
    """Return whether `mask` is False everywhere, on the CPU, where looking costs less than acting on none.

    On other devices, which would have to be waited for, the answer is no.
    """
    return mask.is_cpu and not mask.any()  # NumPy's `any` takes three times as long after a physics step


class IntervalEvent:
    """Calls a term with the mask of the environments whose time has come, and draws their next time."""

    def __init__(self, env: ManagerEnv, name: str, term: EventTerm) -> None:
        self._event = term.bind(env)
        self._step_dt = constant(env.step_dt, env.device)
        self._almost_zero = constant(1e-6, env.device)  # rounding of many small steps must not add one
        self._range_s = term.interval_s
        self._time_left = env.buffers.per_env(f"events/{name}/time_left_s")

    def step(self) -> None:
        """Let one control step pass."""
        self._time_left.sub_(self._step_dt)
        due = self._time_left < self._almost_zero
        if not nobody(due):
            self._event(due)
            self.reset(due)

    def reset(self, mask: Tensor) -> None:
        """Draw a new time where `mask` (N,) is True."""
        drawn = torch.empty_like(self._time_left).uniform_(*self._range_s)
        torch.where(mask, drawn, self._time_left, out=self._time_left)


class EventManager:
    """The events of a task."""

    def __init__(self, env: ManagerEnv, terms: Mapping[str, EventTerm]) -> None:
        self._sim = env.sim

        def of_mode(mode: str) -> dict[str, EventTerm]:
            return {name: term for name, term in terms.items() if term.mode == mode}

        self._startup: list[Callable[[], None]] = [term.bind(env) for term in of_mode("startup").values()]
        self._reset: list[Callable[..., None]] = [term.bind(env) for term in of_mode("reset").values()]
        self._interval = [IntervalEvent(env, name, term) for name, term in of_mode("interval").items()]
        self._default_qpos = torch.tensor(default_qpos(env.sim.model), dtype=torch.float32, device=env.device)
        self._qpos = torch.zeros_like(env.sim.qpos)
        self._qvel = torch.zeros_like(env.sim.qvel)

    def startup(self) -> None:
        """Randomise what stays for the whole training."""
        for event in self._startup:
            event()
        if self._startup:
            self._sim.commit_model()

    def interval(self) -> None:
        """Run the events whose time has come."""
        for event in self._interval:
            event.step()

    def reset(self, mask: Tensor) -> None:
        """Put the environments in `mask` (N,) into the state of a new episode."""
        self._qpos.copy_(self._default_qpos)
        self._qvel.zero_()
        for event in self._reset:
            event(self._qpos, self._qvel)
        self._sim.write_state(self._qpos, self._qvel, mask)
        for interval in self._interval:
            interval.reset(mask)
