"""A reference motion: poses and velocities of a robot's joints and bodies, one frame per control step."""

from __future__ import annotations

import zipfile
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


def load_motion(path: Path, *, num_joints: int, num_bodies: int) -> Motion:
    """Read the npz file of a motion.

    Raises:
        ConfigError: the file cannot be read, or holds other arrays than a motion of such a robot.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name].astype(np.float32) for name in file.files if name != "fps"}
            fps = float(np.asarray(file["fps"]).reshape(-1)[0]) if "fps" in file.files else FPS
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise ConfigError(f"motion {path}: cannot be read: {problem}") from problem
    if fps != FPS:
        raise ConfigError(
            f"motion {path}: has {fps:g} frames per second; a control step is a frame, so {FPS} are wanted"
        )
    missing = [field.name for field in fields(Motion) if field.name not in arrays]
    if missing:
        raise ConfigError(f"motion {path}: lacks {', '.join(missing)}")
    frames = len(arrays["joint_pos"])
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
    return Motion(**{name: arrays[name] for name in shapes})


def save_motion(motion: Motion, path: Path) -> None:
    """Write the npz file of a motion."""
    arrays: dict[str, Any] = {field.name: getattr(motion, field.name) for field in fields(motion)}
    np.savez_compressed(path, fps=np.array([FPS]), **arrays)
