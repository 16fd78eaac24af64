"""Terms of motion tracking: what is observed of the reference, what following it is worth, when it is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.rotations import angle_between, first_two_columns, vertical
from hpclab.envs.terms.motion_command import MotionCommand

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv


def anchor_position(env: ManagerEnv, *, command: str) -> Tensor:
    """observation: position of the reference's anchor in the frame of the robot's, (N, 3) [m]."""
    motion = _motion(env, command)
    return motion.in_anchor_frame(motion.ref_pos[:, motion.anchor, None]).squeeze(1)


def anchor_orientation(env: ManagerEnv, *, command: str) -> Tensor:
    """observation: orientation of the reference's anchor relative to the robot's, (N, 6)."""
    motion = _motion(env, command)
    return first_two_columns(motion.turned_to_anchor(motion.ref_quat[:, motion.anchor, None])).squeeze(1)


def body_positions(env: ManagerEnv, *, command: str) -> Tensor:
    """observation: positions of the robot's bodies in the frame of its anchor, (N, 3 B) [m]."""
    motion = _motion(env, command)
    return motion.in_anchor_frame(motion.pos).flatten(1)


def body_orientations(env: ManagerEnv, *, command: str) -> Tensor:
    """observation: orientations of the robot's bodies relative to its anchor, (N, 6 B)."""
    motion = _motion(env, command)
    return first_two_columns(motion.turned_to_anchor(motion.quat)).flatten(1)


def _anchor_position_error(motion: MotionCommand) -> Tensor:
    return _squared(motion.ref_pos[:, motion.anchor] - motion.pos[:, motion.anchor])


def _anchor_angle_error(motion: MotionCommand) -> Tensor:
    return angle_between(motion.ref_quat[:, motion.anchor], motion.quat[:, motion.anchor]).square()


def _body_position_error(motion: MotionCommand) -> Tensor:
    return _squared(motion.relative_pos - motion.pos).mean(dim=1)


def _body_angle_error(motion: MotionCommand) -> Tensor:
    return angle_between(motion.relative_quat, motion.quat).square().mean(dim=1)


def _body_lin_vel_error(motion: MotionCommand) -> Tensor:
    return _squared(motion.ref_lin_vel - motion.lin_vel).mean(dim=1)


def _body_ang_vel_error(motion: MotionCommand) -> Tensor:
    return _squared(motion.ref_ang_vel - motion.ang_vel).mean(dim=1)


ERRORS: dict[str, Callable[[MotionCommand], Tensor]] = {
    "anchor_pos": _anchor_position_error,
    "anchor_ori": _anchor_angle_error,
    "body_pos": _body_position_error,
    "body_ori": _body_angle_error,
    "body_lin_vel": _body_lin_vel_error,
    "body_ang_vel": _body_ang_vel_error,
}
"""Squared errors (N,), those of bodies a mean over them: anchors and velocities in the world, bodies relative."""


def following(env: ManagerEnv, *, command: str, error: str, std: float) -> Tensor:
    """reward: exp(-error / std^2), `error` one of `ERRORS`; `std` in [m], [rad], [m/s] or [rad/s]."""
    return torch.exp(ERRORS[error](_motion(env, command)) / -(std**2))


def root_mean_square_error(env: ManagerEnv, *, command: str, error: str) -> Tensor:
    """metric: the root of one of `ERRORS`."""
    return ERRORS[error](_motion(env, command)).sqrt()


def anchor_too_high_or_low(env: ManagerEnv, *, command: str, limit_m: float) -> Tensor:
    """termination: the heights of the anchors differ by more than a limit."""
    motion = _motion(env, command)
    difference: Tensor = motion.ref_pos[:, motion.anchor, 2] - motion.pos[:, motion.anchor, 2]
    return difference.abs() > limit_m


def anchor_leans(env: ManagerEnv, *, command: str, limit: float) -> Tensor:
    """termination: the z components of gravity in the anchors' frames differ by more than a limit."""
    motion = _motion(env, command)
    difference = vertical(motion.ref_quat[:, motion.anchor]) - vertical(motion.quat[:, motion.anchor])
    return difference.abs() > limit


class BodiesTooHighOrLow:
    """termination: the height of one of several bodies differs by more than a limit from the relative reference's."""

    def __init__(self, env: ManagerEnv, *, command: str, bodies: tuple[int, ...], limit_m: float) -> None:
        """Give the bodies' places among those that the command follows."""
        motion = _motion(env, command)
        self._limit_m = limit_m
        self._reference, self._robot = motion.relative_pos[..., 2], motion.pos[..., 2]
        self._bodies = torch.tensor(bodies, device=env.device)

    def __call__(self) -> Tensor:
        """Return the (N,) mask."""
        difference = (self._reference - self._robot).index_select(1, self._bodies)
        return (difference.abs() > self._limit_m).any(dim=1)


def _motion(env: ManagerEnv, command: str) -> MotionCommand:
    motion: MotionCommand = env.commands[command]
    return motion


def _squared(difference: Tensor) -> Tensor:
    return difference.square().sum(dim=-1)
