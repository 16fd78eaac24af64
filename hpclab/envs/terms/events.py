"""Event terms: where episodes start, and what disturbs them. What differs between environments is in `randomize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.terms.sensors import side_by_side

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

Range = tuple[float, float]


def _limits(ranges: Sequence[Range], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return lower ends and widths."""
    lower = torch.tensor([r[0] for r in ranges], device=device)
    upper = torch.tensor([r[1] for r in ranges], device=device)
    return lower, upper - lower


class ResetRootUniform:
    """reset: move and turn the free joint of an upright default pose within x, y, z [m] and yaw [rad]."""

    def __init__(self, env: ManagerEnv, *, x: Range, y: Range, z: Range, yaw: Range) -> None:
        # A turn by yaw is the quaternion (cos(yaw / 2), 0, 0, sin(yaw / 2)).
        self._lower, self._width = _limits([x, y, z, (yaw[0] / 2, yaw[1] / 2)], env.device)

    def __call__(self, qpos: Tensor, qvel: Tensor) -> None:
        """Change (N, nq) start states in place."""
        drawn = torch.empty(qpos.shape[0], 4, device=qpos.device).uniform_()
        offset = torch.addcmul(self._lower, drawn, self._width)
        x_y_z, half_yaw = offset.split_with_sizes((3, 1), dim=1)
        qpos[:, :3].add_(x_y_z)
        torch.cos(half_yaw, out=qpos[:, 3:4])
        torch.sin(half_yaw, out=qpos[:, 6:7])


class ResetJointsUniform:
    """reset: add uniform offsets to the joints' positions [rad or m] and velocities [rad/s or m/s], by joint."""

    def __init__(self, env: ManagerEnv, *, position: dict[str, Range], velocity: dict[str, Range]) -> None:
        """Give ranges by the joints' names; other joints keep their default.

        Raises:
            ValueError: there is no such joint.
        """

        def of_joints(ranges: dict[str, Range]) -> tuple[Tensor, Tensor]:
            if unknown := ranges.keys() - set(env.joints.names):
                raise ValueError(
                    f"no joints {sorted(unknown)} to start off their default; there are {env.joints.names}"
                )
            return _limits([ranges.get(joint, (0.0, 0.0)) for joint in env.joints.names], env.device)

        self._position, self._velocity = of_joints(position), of_joints(velocity)
        self._in_qpos, self._in_qvel = env.joints.in_qpos, env.joints.in_qvel

    def __call__(self, qpos: Tensor, qvel: Tensor) -> None:
        """Change (N, nq) and (N, nv) start states in place."""
        for state, columns, (lower, width) in (
            (qpos, self._in_qpos, self._position),
            (qvel, self._in_qvel, self._velocity),
        ):
            joints = state[:, columns]
            joints.add_(torch.addcmul(lower, torch.rand_like(joints), width))


class PushRoot:
    """interval: add to the velocity of the free joint: x, y, z [m/s] and roll, pitch, yaw [rad/s], world frame."""

    def __init__(
        self, env: ManagerEnv, *, axes: Sequence[str], linear: Sequence[Range], angular: Sequence[Range]
    ) -> None:
        """Name the sensors of the body's x, y and z axes in the world."""
        self._sim = env.sim
        self._axes = side_by_side(env, axes)
        self._delta = torch.zeros_like(env.sim.qvel)
        self._linear, self._angular = self._delta[:, :3], self._delta[:, 3:6]
        self._lower, self._width = _limits([*linear, *angular], env.device)
        self._push = torch.zeros(env.num_envs, 6, device=env.device)
        self._push_linear, self._push_angular = self._push[:, :3], self._push[:, None, 3:]

    def __call__(self, due: Tensor) -> None:
        """Push environments in `due` (N,)."""
        torch.addcmul(self._lower, torch.empty_like(self._push).uniform_(), self._width, out=self._push)
        self._linear.copy_(self._push_linear)
        torch.sum(self._axes * self._push_angular, dim=2, out=self._angular)  # into the body's frame
        self._sim.add_velocity(self._delta, due)
