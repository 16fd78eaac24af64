"""Buffers are checked by name, shape and type before anything is written."""

from __future__ import annotations

import pytest
import torch

from hpclab.envs.buffers import Buffers
from hpclab.errors import CheckpointError


def buffers(num_envs: int = 2) -> Buffers:
    made = Buffers(num_envs, torch.device("cpu"))
    made.per_env("time", fill=1.0)
    made.shared("count", 1, dtype=torch.int64)
    return made


def test_load_writes_in_place() -> None:
    source, target = buffers(), Buffers(2, torch.device("cpu"))
    time, count = target.per_env("time"), target.shared("count", 1, dtype=torch.int64)
    target.load_state_dict(source.state_dict())
    assert time.tolist() == [1.0, 1.0]
    assert count.tolist() == [0]


def test_state_is_a_copy() -> None:
    made = buffers()
    state = made.state_dict()
    state["time"].fill_(7.0)
    assert made.state_dict()["time"].tolist() == [1.0, 1.0]


def test_states_of_another_task_or_size_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"time is torch.float32 \(3,\)"):
        buffers().load_state_dict(buffers(3).state_dict())
    with pytest.raises(CheckpointError, match="count"):
        buffers().load_state_dict({"time": torch.zeros(2)})
