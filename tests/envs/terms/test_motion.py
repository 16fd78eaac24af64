"""Motion tracking: frames, references, rewards, terminations and where episodes start, on the task itself."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from hpclab.config.schema import EnvSection, RunConfig
from hpclab.envs import rotations
from hpclab.envs.make import make_env
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.motions.motion import Motion, save_motion
from hpclab.envs.motions.squat_and_wave import squat_and_wave
from hpclab.envs.sim.make import make_sim
from hpclab.envs.tasks import load_task
from hpclab.envs.terms import motion as terms
from hpclab.envs.terms.motion_command import MotionCommand, MotionStarts
from hpclab.errors import ConfigError

N = 4
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def motion() -> Motion:
    return squat_and_wave()


def build(motion: Motion, *, num_envs: int = N, **starts) -> tuple[ManagerEnv, MotionCommand, MotionStarts]:
    task = load_task("g1-tracking")
    command, term = task.commands["motion"], task.curriculum["motion_starts"]
    task = dataclasses.replace(
        task,
        commands={"motion": dataclasses.replace(command, params={**command.params, "motion": lambda: motion})},
        curriculum={"motion_starts": dataclasses.replace(term, params={**term.params, **starts})},
        events={name: event for name, event in task.events.items() if event.mode == "reset"},
        randomize_initial_episode_length=False,
    )
    torch.manual_seed(0)
    sim = make_sim(task.model(), num_envs, device=CPU, num_substeps=task.decimation)
    env = ManagerEnv("g1-tracking", task, sim)
    return env, env.commands["motion"], env.curricula["motion_starts"]


EXACT = {"pose": {}, "velocity": {}, "joint_offset": (0.0, 0.0)}


def test_an_episode_starts_in_the_reference_and_shows_the_next_frame(motion: Motion) -> None:
    env, command, _ = build(motion, sampling="start", **EXACT)
    observations = env.reset()
    assert command.frame.tolist() == [1] * N
    torch.testing.assert_close(env.joints.pos, torch.tensor(motion.joint_pos[0]).expand(N, 29))
    torch.testing.assert_close(observations["critic"][:, :29], torch.tensor(motion.joint_pos[1]).expand(N, 29))
    slices = env.observations.slices["critic"]
    upright = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    assert slices["body_ori"].stop - slices["body_ori"].start == 84
    torch.testing.assert_close(observations["critic"][0, slices["motion_anchor_ori"]], upright, atol=2e-2, rtol=0)
    for error in ("anchor_pos", "anchor_ori", "body_pos", "body_ori"):
        assert terms.ERRORS[error](command).max() < 1e-4  # a frame apart, hardly moving yet
    env.step(torch.zeros(N, 29))
    assert command.frame.tolist() == [2] * N


def test_the_relative_reference_follows_heading_and_place_but_not_height(motion: Motion) -> None:
    env, command, _ = build(motion, sampling="start", **EXACT)
    env.reset()
    qpos, qvel = env.sim.qpos.clone(), env.sim.qvel.clone()
    turn = rotations.from_roll_pitch_yaw(torch.tensor([0.0, 0.0, 0.7])).expand(N, 4)
    qpos[:, :3] = rotations.rotate(turn, qpos[:, :3]) + torch.tensor([1.0, -2.0, 0.3])
    qpos[:, 3:7] = rotations.multiply(turn, qpos[:, 3:7])
    everyone = torch.ones(N, dtype=torch.bool)
    env.sim.write_state(qpos, qvel, everyone)
    command.frame.fill_(-1)
    env.refresh(~everyone)
    error = command.relative_pos - command.pos
    assert error[..., :2].abs().max() < 1e-4
    torch.testing.assert_close(error[..., 2], torch.full((N, 14), -0.3), atol=1e-4, rtol=0)
    assert rotations.angle_between(command.relative_quat, command.quat).max() < 1e-3
    assert terms.ERRORS["body_pos"](command).tolist() == pytest.approx([0.09] * N, abs=1e-4)
    assert terms.ERRORS["anchor_ori"](command).tolist() == pytest.approx([0.49] * N, abs=1e-3)
    reward = terms.following(env, command="motion", error="body_pos", std=0.3)
    assert reward.tolist() == pytest.approx([math.exp(-1)] * N, abs=1e-3)
    assert terms.anchor_too_high_or_low(env, command="motion", limit_m=0.25).all()
    assert not terms.anchor_leans(env, command="motion", limit=0.8).any()
    low = terms.BodiesTooHighOrLow(env, command="motion", bodies=(3, 6), limit_m=0.25)
    assert low().all()
    command.relative_pos[:, 3:7, 2] += 0.1  # 0.2 m away
    assert not low().any()
    seen = terms.anchor_position(env, command="motion")
    assert seen.norm(dim=1).tolist() == pytest.approx(
        (command.ref_pos[:, 7] - command.pos[:, 7]).norm(dim=1).tolist(), abs=1e-4
    )


def test_a_motion_that_is_over_starts_anew_within_the_episode(motion: Motion) -> None:
    env, command, _ = build(motion, sampling="start", **EXACT)
    env.reset()
    command.frame[:2] = motion.joint_pos.shape[0] - 1
    step = env.step(torch.zeros(N, 29))
    assert command.frame.tolist() == [0, 0, 2, 2]
    assert not step.dones[:2].any()
    assert env.episode_length.tolist()[:2] == [1, 1]
    torch.testing.assert_close(env.joints.pos[:2], torch.tensor(motion.joint_pos[0]).expand(2, 29))
    torch.testing.assert_close(step.observations["critic"][:2, :29], torch.tensor(motion.joint_pos[:1]).expand(2, 29))


def test_start_states_are_spread_within_their_ranges(motion: Motion) -> None:
    _, _, starts = build(motion, num_envs=2000)
    qpos, qvel = starts.state_at(torch.zeros(2000, dtype=torch.int64))
    root = torch.tensor(motion.body_pos_w[0, 0])
    for column, bound in enumerate((0.05, 0.05, 0.01)):
        assert (qpos[:, column] - root[column]).abs().max().item() == pytest.approx(bound, rel=0.02)
    assert (qpos[:, 7:] - torch.tensor(motion.joint_pos[0])).abs().max() <= 0.1 + 1e-6
    yaw = 2 * torch.atan2(qpos[:, 6], qpos[:, 3])
    assert yaw.abs().max().item() == pytest.approx(0.2, abs=0.02)
    world = rotations.rotate(qpos[:, 3:7], qvel[:, 3:6])
    assert world.abs().max(dim=0).values.tolist() == pytest.approx([0.52, 0.52, 0.78], rel=0.02)
    assert (qvel[:, 6:] - torch.tensor(motion.joint_vel[0])).abs().max() == 0


def test_parts_in_which_episodes_fail_are_drawn_more_often(motion: Motion) -> None:
    env, command, starts = build(motion, num_envs=400)
    env.reset()
    bins = 11
    assert starts.probabilities().tolist() == pytest.approx([1 / bins] * bins)
    ended = torch.arange(400) < 100
    command.frame.fill_(6 * 501 // bins + 3)  # in the seventh part
    env.timing_out = torch.arange(400) < 40
    starts.step(ended)
    expected = torch.full((bins,), 0.1 / bins)
    expected[6] += 0.001 * 60  # the other forty timed out
    torch.testing.assert_close(starts.probabilities(), expected / expected.sum())
    env.timing_out = torch.zeros(400, dtype=torch.bool)
    starts.step(~ended & ended)
    expected[6] += 0.001 * 60 * (0.999 - 1)
    torch.testing.assert_close(starts.probabilities(), expected / expected.sum())
    # deciding from the statistics of this rank alone changes nothing
    before = starts.probabilities()
    env.decide_curriculum(env.curriculum_statistics().clone())
    torch.testing.assert_close(starts.probabilities(), before)
    drawn = torch.cat([starts._draw() for _ in range(50)])
    share = ((drawn * bins // 501) == 6).float().mean().item()
    assert share == pytest.approx(before[6].item(), abs=0.02)
    assert drawn.max() <= 500


def test_uniform_sampling_reaches_every_frame(motion: Motion) -> None:
    _, _, starts = build(motion, num_envs=500, sampling="uniform")
    drawn = torch.cat([starts._draw() for _ in range(40)])
    assert (drawn.min().item(), drawn.max().item()) == (0, 500)


def test_env_motion_names_another_file(motion: Motion, tmp_path) -> None:
    short = Motion(*(getattr(motion, field.name)[:120] for field in dataclasses.fields(Motion)))
    save_motion(short, tmp_path / "short.npz")
    section = EnvSection(num_envs=2, motion=str(tmp_path / "short.npz"))
    env = make_env(RunConfig(task="g1-tracking", env=section), num_envs=2, device=CPU, threads=1)
    assert env.commands["motion"].num_frames == 120
    with pytest.raises(ConfigError, match="cartpole-balance follows no motion"):
        make_env(RunConfig(task="cartpole-balance", env=section), num_envs=2, device=CPU, threads=1)
