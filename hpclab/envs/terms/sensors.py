"""Views over several sensors at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def side_by_side(env: ManagerEnv, names: Sequence[str]) -> Tensor:
    """Return the live (N, K, dim) view of K sensors that lie at equal distances in the model's sensor data.

    Raises:
        ValueError: they have different sizes or lie at unequal distances, so that no such view exists.
    """
    return _stacked([env.sensor(name) for name in names], names)


def history_side_by_side(env: ManagerEnv, names: Sequence[str]) -> Tensor:
    """Return the live (N, S, K, dim) view of K such sensors in each of the S substeps of the last control step.

    Raises:
        ValueError: as `side_by_side`.
    """
    return _stacked([env.sim.sensor_history(name) for name in names], names)


def _stacked(views: Sequence[Tensor], names: Sequence[str]) -> Tensor:
    offsets = [view.storage_offset() for view in views]
    distances = {later - earlier for earlier, later in itertools.pairwise(offsets)}
    same_storage = len({view.untyped_storage().data_ptr() for view in views}) == 1
    if len({view.shape for view in views}) > 1 or len(distances) > 1 or not same_storage:
        raise ValueError(f"sensors {list(names)} do not lie at equal distances; reorder them in the model")
    first = views[0]
    distance = distances.pop() if distances else first.shape[-1]
    shape = (*first.shape[:-1], len(views), first.shape[-1])
    return torch.as_strided(first, shape, (*first.stride()[:-1], distance, first.stride(-1)), offsets[0])
