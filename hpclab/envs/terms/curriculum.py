"""Curriculum terms: what becomes harder as training goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.constants import constant
from hpclab.envs.events import nobody
from hpclab.envs.spec import Curriculum
from hpclab.envs.vec_env import CurriculumLevels

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class VelocityStage:
    """Command ranges from a point of training on."""

    from_step: int
    """Control steps of this rank."""
    vx: Range
    vy: Range
    yaw_rate: Range


class VelocityRanges(Curriculum):
    """Widen the ranges of a velocity command stage by stage."""

    def __init__(self, env: ManagerEnv, *, command: str, stages: Sequence[VelocityStage]) -> None:
        """Give the stages in order; before the first one the command keeps its own ranges."""
        self._step_count = env.step_count
        self._ranges = env.commands[command].ranges
        self._one = constant(1.0, env.device)
        own = self._ranges.clone()
        tables = [torch.tensor([stage.vx, stage.vy, stage.yaw_rate], device=env.device).t() for stage in stages]
        self._tables = torch.stack([own, *tables])
        self._from_step = torch.tensor([stage.from_step for stage in stages], device=env.device)

    def start(self) -> None:
        """Write the ranges of the current stage."""
        stage = torch.bucketize(self._step_count, self._from_step, right=True)
        self._ranges.copy_(self._tables.index_select(0, stage)[0])

    def step(self, ended: Tensor) -> None:
        """Write the ranges of a stage that begins."""
        if not nobody(self._from_step == self._step_count):
            self.start()

    def levels(self) -> CurriculumLevels:
        """Return the bounds of the ranges [m/s, rad/s]."""
        bounds = zip(("min", "max"), self._ranges, strict=True)
        axes = ("vx", "vy", "yaw_rate")
        return CurriculumLevels(
            {f"{axis}_{end}": (bound, self._one) for end, row in bounds for axis, bound in zip(axes, row, strict=True)}
        )

    def state(self) -> Mapping[str, Tensor]:
        """Return the (2, 3) ranges."""
        return {"ranges": self._ranges}
