"""Motions: files, tables, and the one that is made here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mujoco
import numpy as np
import pytest

from hpclab.envs.motions.motion import Motion, load_motion, save_motion
from hpclab.envs.motions.squat_and_wave import squat_and_wave
from hpclab.envs.motions.table import motion_from_table
from hpclab.envs.robots.g1 import g1_on_plane
from hpclab.errors import ConfigError


@pytest.fixture(scope="module")
def motion() -> Motion:
    return squat_and_wave()


def test_squat_and_wave_stands_on_its_feet_and_stays_in_its_limits(motion: Motion) -> None:
    model = g1_on_plane().compile()
    assert (motion.joint_pos.shape, motion.body_pos_w.shape) == ((501, 29), (501, 30, 3))
    limits = model.jnt_range[1:]
    centre, half = limits.mean(axis=1), np.diff(limits, axis=1)[:, 0] / 2
    assert (np.abs(motion.joint_pos - centre) <= 0.9 * half).all()
    data = mujoco.MjData(model)
    feet = []
    for k in range(0, 501, 25):
        data.qpos[:] = [*motion.body_pos_w[k, 0], *motion.body_quat_w[k, 0], *motion.joint_pos[k]]
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.xpos[1:31], motion.body_pos_w[k], atol=1e-5)
        foot = (data.site("left_foot").xpos + data.site("right_foot").xpos) / 2
        feet.append(foot)
        assert np.abs(data.subtree_com[1][:2] - foot[:2]).max() < 0.03  # the robot would not tip over
        assert data.sensor("self_collision_found").data[0] == 0
    np.testing.assert_allclose(feet, np.broadcast_to(feet[0], (len(feet), 3)), atol=1e-5)
    assert np.ptp(motion.body_pos_w[:, 0, 2]) > 0.15  # it squats
    hand = motion.body_pos_w[:, 29]
    assert hand[290:390, 2].min() > hand[0, 2] + 0.2  # and waves
    assert np.ptp(hand[290:390, :2], axis=0).max() > 0.1


def test_velocities_of_bodies_are_the_derivatives_of_their_positions(motion: Motion) -> None:
    derivative = np.gradient(motion.body_pos_w, 1 / 50, axis=0)
    assert np.abs(derivative - motion.body_lin_vel_w)[2:-2].max() < 0.01
    assert np.abs(motion.body_lin_vel_w).max() > 0.3


def test_a_turning_root_is_resampled_spherically() -> None:
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(
        name="ball", mass=1, inertia=[1, 1, 1], ipos=[0.1, 0, 0], explicitinertial=True
    ).add_freejoint()
    model = spec.compile()
    angle = np.arange(31) / 30 * 2.0  # 2 rad/s about z, moving along x at 3 m/s
    zero = np.zeros(31)
    table = np.stack([1.5 * angle, zero, zero, zero, zero, np.sin(angle / 2), np.cos(angle / 2)], axis=1)
    motion = motion_from_table(model, table, fps=30.0)
    assert len(motion.body_pos_w) == 51
    np.testing.assert_allclose(motion.body_quat_w[10, 0], [np.cos(0.2), 0, 0, np.sin(0.2)], atol=1e-6)
    np.testing.assert_allclose(motion.body_ang_vel_w[:, 0], np.broadcast_to([0, 0, 2.0], (51, 3)), atol=1e-4)
    np.testing.assert_allclose(motion.body_lin_vel_w[:, 0], np.broadcast_to([3.0, 0, 0], (51, 3)), atol=1e-4)


def test_a_saved_motion_reads_back_equal(motion: Motion, tmp_path: Path) -> None:
    save_motion(motion, tmp_path / "saved.npz")
    with np.load(tmp_path / "saved.npz") as arrays:
        np.savez(tmp_path / "motion.npz", **arrays, joint_names=np.array(["hip", "knee"]))  # more than is asked for
    loaded = load_motion(tmp_path / "motion.npz", num_joints=29, num_bodies=30)
    for field in dataclasses.fields(Motion):
        assert np.array_equal(getattr(loaded, field.name), getattr(motion, field.name))


def test_files_that_do_not_fit_are_named(motion: Motion, tmp_path: Path) -> None:
    path = tmp_path / "motion.npz"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_motion(path, num_joints=29, num_bodies=30)
    save_motion(motion, path)
    with pytest.raises(ConfigError, match=r"joint_pos is \(501, 29\), \(501, 12\) wanted"):
        load_motion(path, num_joints=12, num_bodies=30)
    np.savez(path, joint_pos=motion.joint_pos)
    with pytest.raises(ConfigError, match="lacks joint_vel, body_pos_w"):
        load_motion(path, num_joints=29, num_bodies=30)
    np.savez(path, joint_pos=motion.joint_pos, fps=np.array([30]))
    with pytest.raises(ConfigError, match="30 frames per second; a control step is a frame, so 50 are wanted"):
        load_motion(path, num_joints=29, num_bodies=30)


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:60] + b"\xff" * 10 + data[70:], lambda data: data[: len(data) // 2], lambda data: b""],
    ids=["flipped", "cut", "empty"],
)
def test_a_damaged_file_is_named(motion: Motion, tmp_path: Path, damage) -> None:
    path = tmp_path / "motion.npz"
    save_motion(motion, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"motion\.npz: cannot be read"):
        load_motion(path, num_joints=29, num_bodies=30)


def test_a_motion_needs_frames_of_finite_numbers(motion: Motion, tmp_path: Path) -> None:
    path, arrays = (
        tmp_path / "motion.npz",
        {field.name: getattr(motion, field.name) for field in dataclasses.fields(Motion)},
    )
    save_motion(Motion(**{name: array[:0] for name, array in arrays.items()}), path)
    with pytest.raises(ConfigError, match="has no frames"):
        load_motion(path, num_joints=29, num_bodies=30)
    save_motion(Motion(**arrays | {"joint_vel": np.full_like(motion.joint_vel, np.nan)}), path)
    with pytest.raises(ConfigError, match="joint_vel holds numbers that are not finite"):
        load_motion(path, num_joints=29, num_bodies=30)
    np.save(tmp_path / "motion.npy", motion.joint_pos)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_motion(tmp_path / "motion.npy", num_joints=29, num_bodies=30)
