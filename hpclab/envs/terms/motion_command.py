"""Following a reference motion: which frame each environment is at, and where its episodes start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import mujoco
import torch
from torch import Tensor

from hpclab.envs.motions.motion import FPS, Motion, load_motion
from hpclab.envs.robots.legged import TERRAIN
from hpclab.envs.rotations import conjugate, from_roll_pitch_yaw, multiply, rotate, rotate_back, yaw_part
from hpclab.envs.spec import Curriculum
from hpclab.envs.terms.sensors import side_by_side

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

Range = tuple[float, float]
Sampling = Literal["adaptive", "uniform", "start"]

_SENSORS = {
    "pos": mujoco.mjtSensor.mjSENS_FRAMEPOS,
    "quat": mujoco.mjtSensor.mjSENS_FRAMEQUAT,
    "lin_vel": mujoco.mjtSensor.mjSENS_FRAMELINVEL,
    "ang_vel": mujoco.mjtSensor.mjSENS_FRAMEANGVEL,
}


def add_body_sensors(spec: mujoco.MjSpec, bodies: Sequence[str]) -> None:
    """Add the sensors that a `MotionCommand` on these bodies reads."""
    for quantity, kind in _SENSORS.items():
        for body in bodies:
            spec.add_sensor(
                name=f"motion_{body}_{quantity}", type=kind, objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=body
            )


class MotionCommand:
    """The frame of the motion that each environment is at, and the robot's bodies to compare with it. B bodies.

    The observation of a control step is taken at a frame, the rewards after its substeps compare with the same one, and
    then all environments go on to the next. `relative_pos` and `relative_quat` are the reference moved to where the
    robot's anchor was at the observation: turned about the vertical by the difference in heading, and shifted in x and
    y; heights stay.

    Attributes:
        value: (N, 2 J) reference joint positions [rad] and velocities [rad/s], as observed.
        frame: (N,) int64 index of the frame.
        num_frames: T.
        ref_pos, ref_quat, ref_lin_vel, ref_ang_vel: (N, B, 3 or 4) of the reference's bodies in the world.
        relative_pos, relative_quat: (N, B, 3 or 4), see above.
        pos, quat, lin_vel, ang_vel: (N, B, 3 or 4) live views of the robot's bodies in the world.
        anchor: index of the anchor among the bodies.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        motion: Path | Callable[[], Motion],
        bodies: Sequence[str],
        anchor: str,
    ) -> None:
        """Give the motion, the bodies that are followed (see `add_body_sensors`), and the one they are seen from.

        Raises:
            ConfigError: the motion's file does not fit the robot.
        """
        names = _robot_bodies(env.sim.model)
        if isinstance(motion, Path):
            self.motion = load_motion(motion, num_joints=len(env.joints.names), num_bodies=len(names))
        else:
            self.motion = motion()
        self.num_frames = self.motion.num_frames
        self.anchor = bodies.index(anchor)
        self._table, sizes = _rows(self.motion, [names.index(body) for body in bodies])
        self._table = self._table.to(env.device)
        self.frame = env.buffers.per_env(f"{name}/frame", dtype=torch.int64)
        self._row = env.buffers.per_env(f"{name}/reference", sum(sizes))
        joints, pos, quat, lin_vel, ang_vel = torch.split_with_sizes(self._row, sizes, dim=1)
        count = len(bodies)
        self.value = joints
        self.ref_pos, self.ref_lin_vel, self.ref_ang_vel = (part.view(-1, count, 3) for part in (pos, lin_vel, ang_vel))
        self.ref_quat = quat.view(-1, count, 4)
        self.relative_pos = env.buffers.per_env(f"{name}/relative_pos_m", count, 3)
        self.relative_quat = env.buffers.per_env(f"{name}/relative_quat", count, 4)
        self.pos, self.quat, self.lin_vel, self.ang_vel = (
            side_by_side(env, [f"motion_{body}_{quantity}" for body in bodies]) for quantity in _SENSORS
        )

    def update(self, fresh: Tensor) -> None:
        """Go on to the next frame, also in environments of `fresh` (N,), whose episodes began at the present one."""
        self.frame.add_(1)
        torch.index_select(self._table, 0, self.frame.clamp(0, self.num_frames - 1), out=self._row)
        robot, reference = slice(self.anchor, self.anchor + 1), self.ref_pos[:, self.anchor : self.anchor + 1]
        turn = yaw_part(multiply(self.quat[:, robot], conjugate(self.ref_quat[:, robot])))
        origin = torch.cat([self.pos[:, robot, :2], reference[..., 2:]], dim=2)
        self.relative_pos.copy_(origin + rotate(turn, self.ref_pos - reference))
        self.relative_quat.copy_(multiply(turn.expand_as(self.ref_quat), self.ref_quat))

    def in_anchor_frame(self, positions: Tensor) -> Tensor:
        """Return (N, K, 3) world positions as the robot's anchor sees them."""
        return rotate_back(self.quat[:, self.anchor, None], positions - self.pos[:, self.anchor, None])

    def turned_to_anchor(self, orientations: Tensor) -> Tensor:
        """Return (N, K, 4) orientations relative to the robot's anchor."""
        return multiply(conjugate(self.quat[:, self.anchor, None]).expand_as(orientations), orientations)


class MotionStarts(Curriculum):
    """Chooses the frames at which episodes start, and starts the motion anew where it has ended.

    adaptive: parts of the motion, about a second each, are drawn in proportion to how often episodes terminated in
    them, averaged over about a thousand control steps, plus a tenth of a uniform share. Failures count on this rank
    at once; between iterations the averages follow `sync.curriculum`.
    """

    _RATE, _UNIFORM_SHARE = 0.001, 0.1

    def __init__(
        self,
        env: ManagerEnv,
        *,
        name: str,
        command: str,
        sampling: Sampling = "adaptive",
        pose: Mapping[str, Range],
        velocity: Mapping[str, Range],
        joint_offset: Range,
        soft_factor: float,
    ) -> None:
        """Give the ranges of what is added to the reference state.

        Args:
            env: the environment.
            name: prefix of the buffers.
            command: the `MotionCommand`.
            sampling: how frames are drawn; start is always the first.
            pose: offsets of the root, x, y, z [m], roll, pitch, yaw [rad], in the world.
            velocity: the same of its velocity [m/s, rad/s].
            joint_offset: of each joint position [rad], which stays within its soft limits.
            soft_factor: soft limits are the joint's range times this, about its centre.

        Raises:
            ValueError: there is no such axis.
        """
        self._env = env
        self._command: MotionCommand = env.commands[command]
        self._sampling = sampling
        motion = self._command.motion
        self._num_bins = motion.num_frames // FPS + 1
        self._failed = env.buffers.shared(f"{name}/failed", self._num_bins)
        self._steps = env.buffers.shared(f"{name}/steps")
        self._recent = env.buffers.shared(f"{name}/recent", self._num_bins)
        self.statistics = self._recent
        self._qpos, self._qvel = (table.to(env.device) for table in _states(motion))
        axes = ("x", "y", "z", "roll", "pitch", "yaw")
        if unknown := (pose.keys() | velocity.keys()) - set(axes):
            raise ValueError(f"start states have no axes {sorted(unknown)}; there are {axes}")
        ranges = [part.get(axis, (0.0, 0.0)) for part in (pose, velocity) for axis in axes]
        limits = torch.tensor([*ranges, *[joint_offset] * len(env.joints.names)], device=env.device)
        self._lower, self._width = limits[:, 0], limits[:, 1] - limits[:, 0]
        self._lowest_joints, self._highest_joints = env.joints.soft_limits(soft_factor)

    def start(self) -> None:
        """Draw a frame for every environment."""
        self._command.frame.copy_(self._draw())

    def step(self, ended: Tensor) -> None:
        """Draw frames where episodes in `ended` (N,) are over; go to drawn states where the motion is over."""
        frame = self._command.frame
        bins = torch.arange(self._num_bins, device=frame.device)
        at = (frame * self._num_bins // self._command.num_frames).clamp(max=self._num_bins - 1)
        failed = ended & ~self._env.timing_out
        counts = ((at[:, None] == bins) & failed[:, None]).sum(dim=0)
        over = (frame + 1 >= self._command.num_frames) & ~ended
        drawn = self._draw()
        torch.where(ended, drawn, frame, out=frame)
        qpos, qvel = self.state_at(drawn)
        self._env.sim.write_state(qpos, qvel, over)
        # the frame that is drawn now is shown next, as the command goes on by one
        torch.where(over, drawn - 1, frame, out=frame)
        self._recent.mul_(1 - self._RATE).add_(counts, alpha=self._RATE)
        self._steps.add_(1)

    def decide(self, statistics: Tensor) -> None:
        """Take over the (bins,) failures since the last decision."""
        self._failed.mul_((1 - self._RATE) ** self._steps).add_(statistics)
        self._steps.zero_()

    def state(self) -> Mapping[str, Tensor]:
        """Return the averages that all ranks start an iteration from."""
        return {"failed": self._failed}

    def probabilities(self) -> Tensor:
        """Return how likely each part of the motion is, (bins,)."""
        failed = self._failed * (1 - self._RATE) ** self._steps + self._recent
        weights: Tensor = failed + self._UNIFORM_SHARE / self._num_bins
        return weights / weights.sum()

    def state_at(self, frame: Tensor) -> tuple[Tensor, Tensor]:
        """Return randomised (N, nq) and (N, nv) states at (N,) frames."""
        qpos, qvel = self._qpos.index_select(0, frame), self._qvel.index_select(0, frame)
        drawn = torch.addcmul(self._lower, torch.rand(len(frame), len(self._lower), device=frame.device), self._width)
        sizes = [3, 3, 3, 3, drawn.shape[1] - 12]
        shift, angles, lin_vel, ang_vel, offsets = torch.split_with_sizes(drawn, sizes, dim=1)
        qpos[:, :3] += shift
        quat = multiply(from_roll_pitch_yaw(angles), qpos[:, 3:7])
        qpos[:, 3:7] = quat
        joints = qpos[:, 7:] + offsets
        qpos[:, 7:] = torch.clamp(joints, self._lowest_joints, self._highest_joints)
        qvel[:, :3] += lin_vel
        qvel[:, 3:6] = rotate_back(quat, qvel[:, 3:6] + ang_vel)  # a free joint turns in its own frame
        return qpos, qvel

    def _draw(self) -> Tensor:
        """Return (N,) frames."""
        count, last = self._env.num_envs, self._command.num_frames - 1
        share = torch.rand(count, device=self._failed.device)
        if self._sampling == "start":
            return torch.zeros(count, dtype=torch.int64, device=share.device)
        if self._sampling == "uniform":
            return (share * (last + 1)).long().clamp_(max=last)
        edges = self.probabilities().cumsum(dim=0)
        bins = torch.searchsorted(edges, torch.rand_like(share) * edges[-1], right=True).clamp_(max=len(edges) - 1)
        place: Tensor = (bins + share) / self._num_bins
        return (place * last).long()


class ResetToMotion:
    """reset: start at the frame that a `MotionStarts` has drawn."""

    def __init__(self, env: ManagerEnv, *, starts: str, command: str) -> None:
        self._command: MotionCommand = env.commands[command]
        self._starts = cast(MotionStarts, env.curricula[starts])

    def __call__(self, qpos: Tensor, qvel: Tensor) -> None:
        """Write (N, nq) and (N, nv) start states in place."""
        states = self._starts.state_at(self._command.frame.clamp(0, self._command.num_frames - 1))
        for target, state in zip((qpos, qvel), states, strict=True):
            target.copy_(state)


def _robot_bodies(model: mujoco.MjModel) -> list[str]:
    """Return all bodies of the robot in the order of its tree."""
    names = [str(model.body(i).name) for i in range(1, model.nbody)]
    return [name for name in names if name != TERRAIN]


def _rows(motion: Motion, bodies: list[int]) -> tuple[Tensor, list[int]]:
    """Return a row for each frame, (T, width): joints, then the bodies' arrays; and the width of each part."""
    of_bodies = (motion.body_pos_w, motion.body_quat_w, motion.body_lin_vel_w, motion.body_ang_vel_w)
    parts = [torch.cat([torch.from_numpy(motion.joint_pos), torch.from_numpy(motion.joint_vel)], dim=1)]
    parts += [torch.from_numpy(array[:, bodies]).flatten(1) for array in of_bodies]
    return torch.cat(parts, dim=1), [part.shape[1] for part in parts]


def _states(motion: Motion) -> tuple[Tensor, Tensor]:
    """Return (T, nq) and (T, nv), the root's angular velocity in the world."""
    qpos = (motion.body_pos_w[:, 0], motion.body_quat_w[:, 0], motion.joint_pos)
    qvel = (motion.body_lin_vel_w[:, 0], motion.body_ang_vel_w[:, 0], motion.joint_vel)
    joined = (torch.cat([torch.from_numpy(part) for part in parts], dim=1) for parts in (qpos, qvel))
    return next(joined), next(joined)
