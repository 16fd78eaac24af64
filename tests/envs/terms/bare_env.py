"""The few attributes of an environment that a term reads, with values set by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from hpclab.envs.buffers import Buffers


def bare_env(num_envs: int, sensors: dict[str, Tensor] | None = None, **attributes: Any) -> Any:
    """Return an object with `sensor`, `buffers`, `follow` and whatever else is given; a step is 4 substeps of 5 ms."""
    data = torch.zeros(num_envs, 0)
    columns: dict[str, slice] = {}
    for name, values in (sensors or {}).items():
        columns[name] = slice(data.shape[1], data.shape[1] + values.shape[1])
        data = torch.cat([data, values], dim=1)
    return SimpleNamespace(
        num_envs=num_envs,
        device=torch.device("cpu"),
        step_dt=0.02,
        substep_dt=0.005,
        buffers=Buffers(num_envs, torch.device("cpu")),
        sensor=lambda name: data[:, columns[name]],
        follow=lambda tracker: None,
        **attributes,
    )
