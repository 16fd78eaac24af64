"""A reference motion: poses and velocities of a robot's joints and bodies, one frame per control step."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpclab.errors import ConfigError

Array = NDArray[np.float32]
FPS = 50
"""Frames per second."""


@dataclass(frozen=True, eq=False)
class Motion:
    """T frames of J joints and B bodies, all of the robot in the order of its tree; bodies in the world."""

    joint_pos: Array
    """(T, J) [rad]."""
    joint_vel: Array
    """(T, J) [rad/s]."""
    body_pos_w: Array
    """(T, B, 3) of the bodies' frames [m]."""
    body_quat_w: Array
    """(T, B, 4) w, x, y, z."""
    body_lin_vel_w: Array
    """(T, B, 3) of the bodies' frames [m/s]."""
    body_ang_vel_w: Array
    """(T, B, 3) [rad/s]."""

    @property
    def num_frames(self) -> int:
        """T."""
        return len(self.joint_pos)


_ARRAYS = tuple(field.name for field in fields(Motion))


def load_motion(path: Path, *, num_joints: int, num_bodies: int) -> Motion:
    """Read the npz file of a motion.

    Raises:
        ConfigError: the file cannot be read, or holds other arrays than a motion of such a robot.
    """
    try:
        # not by `np.load`, which takes other kinds of files as well
        with path.open("rb") as opened, np.lib.npyio.NpzFile(opened) as file:
            arrays = {name: np.asarray(file[name]).astype(np.float32) for name in _ARRAYS if name in file.files}
            fps = float(np.asarray(file["fps"]).flat[0]) if "fps" in file.files else FPS
    except (OSError, ValueError, EOFError, IndexError, zipfile.BadZipFile, zlib.error) as problem:
        raise ConfigError(f"motion {path}: cannot be read: {problem}") from problem
    if fps != FPS:
        raise ConfigError(
            f"motion {path}: has {fps:g} frames per second; a control step is a frame, so {FPS} are wanted"
        )
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise ConfigError(f"motion {path}: lacks {', '.join(missing)}")
    frames = arrays["joint_pos"].shape[0] if arrays["joint_pos"].ndim else 0
    if frames == 0:
        raise ConfigError(f"motion {path}: has no frames")
    shapes = {
        "joint_pos": (frames, num_joints),
        "joint_vel": (frames, num_joints),
        "body_pos_w": (frames, num_bodies, 3),
        "body_quat_w": (frames, num_bodies, 4),
        "body_lin_vel_w": (frames, num_bodies, 3),
        "body_ang_vel_w": (frames, num_bodies, 3),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ConfigError(f"motion {path}: {name} is {arrays[name].shape}, {shape} wanted")
        if not np.isfinite(arrays[name]).all():
            raise ConfigError(f"motion {path}: {name} holds numbers that are not finite")
    return Motion(**{name: arrays[name] for name in shapes})


def save_motion(motion: Motion, path: Path) -> None:
    """Write the npz file of a motion."""
    arrays: dict[str, Any] = {name: getattr(motion, name) for name in _ARRAYS}
    np.savez_compressed(path, fps=np.array([FPS]), **arrays)
