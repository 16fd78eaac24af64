"""Mirror images: what a robot would observe and do on the other side of its plane of symmetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Reflection:
    """A signed permutation: entry i of the image is `sign[i]` times entry `source[i]`. Its own inverse."""

    source: tuple[int, ...]
    sign: tuple[float, ...]

    @classmethod
    def signs(cls, *sign: float) -> Reflection:
        """Return the reflection that changes signs alone: (1, -1, 1) for a vector seen from the robot, whose y axis
        points to its left; (-1, 1, -1) for an angular velocity.
        """
        return cls(tuple(range(len(sign))), sign)

    @classmethod
    def swap(cls, pairs: int, *sign: float) -> Reflection:
        """Return the reflection of `pairs` pairs of blocks, left and right of the robot, with `sign` inside each."""
        return cls.blocks([block for pair in range(pairs) for block in (2 * pair + 1, 2 * pair)], *sign)

    @classmethod
    def blocks(cls, counterparts: Sequence[int], *sign: float) -> Reflection:
        """Return the reflection of blocks that trade places with their counterparts, with `sign` inside each."""
        size = len(sign)
        source = tuple(size * block + index for block in counterparts for index in range(size))
        return cls(source, sign * len(counterparts))

    @classmethod
    def joined(cls, parts: Sequence[Reflection]) -> Reflection:
        """Return the reflection of several parts, one after another."""
        source: list[int] = []
        for part in parts:
            source += [len(source) + index for index in part.source]
        return cls(tuple(source), tuple(sign for part in parts for sign in part.sign))

    def repeated(self, count: int) -> Reflection:
        """Return the reflection of `count` vectors in a row, such as a history."""
        return Reflection.joined([self] * count)

    def __len__(self) -> int:
        return len(self.sign)

    def on(self, device: torch.device) -> ReflectTensor:
        """Return the reflection as it is applied to tensors there."""
        return ReflectTensor(torch.tensor(self.source, device=device), torch.tensor(self.sign, device=device))


@dataclass(frozen=True, slots=True)
class ReflectTensor:
    """A reflection of the last dimension."""

    source: Tensor
    sign: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Return the mirror image of (..., D) values."""
        return values.index_select(-1, self.source) * self.sign


@dataclass(frozen=True, slots=True)
class TaskMirror:
    """What a task's observation terms and actions look like in the mirror."""

    observations: Mapping[str, Reflection]
    """By term, without its history; a term of several groups is the same in all of them."""
    actions: Reflection


@dataclass(frozen=True, slots=True)
class Mirror:
    """What an environment's observation groups and actions look like in the mirror."""

    observations: Mapping[str, ReflectTensor]
    """By group."""
    actions: ReflectTensor
