"""Numbers that terms compute with."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


@functools.cache
def constant(value: float, device: torch.device) -> Tensor:
    """Return a number as a float32 scalar on `device`.

    In an operation, torch makes a tensor of a Python number and converts it to the other operand's type each time; for
    some thousand values on the CPU, that takes longer than the operation.
    """
    return torch.tensor(value, dtype=torch.float32, device=device)
