"""Evaluates observation terms and joins them into groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hpclab.envs.processing import Processed
from hpclab.envs.spec import ObservationTerm
from hpclab.envs.vec_env import Observations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpclab.envs.manager import ManagerEnv


class ObservationManager:
    """Observation groups of a task. A term that several groups share is evaluated once per control step."""

    def __init__(self, env: ManagerEnv, groups: Mapping[str, Mapping[str, ObservationTerm]]) -> None:
        self._terms: list[Callable[[], Tensor]] = []
        self._groups: dict[str, list[int]] = {}
        ranges: dict[str, Tensor] = {}
        noisy: dict[str, slice] = {}
        self.slices: dict[str, dict[str, slice]] = {}
        """By group and term: the columns of the group that hold the term."""
        seen: list[ObservationTerm] = []
        for group, terms in groups.items():
            self._groups[group] = []
            widths: list[int] = []
            self.slices[group] = {}
            for name, term in terms.items():
                index = self._index_of(env, f"{group}/{name}", term, seen)
                width = self._terms[index]().shape[1]
                self._groups[group].append(index)
                self.slices[group][name] = slice(sum(widths), sum(widths) + width)
                widths.append(width)
            noise = [term.noise if term.is_plain else 0.0 for term in terms.values()]
            if any(noise):
                columns = torch.repeat_interleave(torch.tensor(noise), torch.tensor(widths))
                places = columns.nonzero()
                noisy[group] = slice(int(places[0]), int(places[-1]) + 1)
                ranges[group] = columns[noisy[group]].to(env.device)
        self.dims = {group: max(part.stop for part in slices.values()) for group, slices in self.slices.items()}
        self.values: Observations = {
            group: torch.zeros(env.num_envs, dim, device=env.device) for group, dim in self.dims.items()
        }
        """Every group (N, dim), as last computed; always the same tensors."""
        self._noise: dict[str, tuple[Tensor, Tensor, Tensor]] = {}  # columns that get noise, its range, what is drawn
        for group, part in noisy.items():
            values = self.values[group][:, part]
            self._noise[group] = (values, ranges[group], torch.zeros(values.shape, device=env.device))

    def _index_of(self, env: ManagerEnv, name: str, term: ObservationTerm, seen: list[ObservationTerm]) -> int:
        for index, other in enumerate(seen):
            shared = term.is_plain and other.is_plain
            if shared and other.func is term.func and _same(other.params, term.params):
                return index
        seen.append(term)
        self._terms.append(term.bind(env) if term.is_plain else Processed(env, name, term))
        return len(seen) - 1

    def compute(self) -> Observations:
        """Bring `values` up to date, noise added, and return them."""
        values = [term() for term in self._terms]
        for group, indices in self._groups.items():
            torch.cat([values[index] for index in indices], dim=1, out=self.values[group])
            if group in self._noise:
                noisy, ranges, drawn = self._noise[group]
                noisy.addcmul_(drawn.uniform_(-1.0, 1.0), ranges)
        return self.values


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether a term gives the same with both parameters; arrays count as the same where they are one object."""
    return one.keys() == other.keys() and all(
        value is other[name] or (not isinstance(value, Tensor | np.ndarray) and bool(value == other[name]))
        for name, value in one.items()
    )
