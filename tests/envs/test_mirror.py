"""Mirror images: applied twice they are the original, and the simulation agrees with them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from hpclab.envs.manager import ManagerEnv
from hpclab.envs.mirror import Reflection
from hpclab.envs.motions.motion import FPS, Motion
from hpclab.envs.motions.table import motion_from_table
from hpclab.envs.robots.g1 import g1_on_plane
from hpclab.envs.sim.make import make_sim
from hpclab.envs.tasks import load_task
from hpclab.envs.terms.mirror import joint_reflection, mirror_of, mirrored_state
from hpclab.errors import ConfigError

CPU = torch.device("cpu")
NOBODY, EVERYBODY = torch.zeros(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
_MOVING = ("base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "foot_height")
_TRACKED = ("command", "motion_anchor_pos", "motion_anchor_ori", "body_pos", "body_ori")
MEASURED = {
    "cartpole-balance": ("cart_position", "pole_direction", "velocities"),
    "g1-velocity-flat": ("base_lin_vel", *_MOVING),
    "g1-velocity-rough": ("base_lin_vel", *_MOVING, "height_scan"),
    "g1-tracking": (*_TRACKED, "base_lin_vel", "base_ang_vel", "joint_pos", "joint_vel"),
    "go1-velocity-flat": _MOVING,
    "go1-velocity-rough": (*_MOVING, "height_scan"),
}
"""Terms that follow from the physics alone; but the Go1's IMU, whose velocity it observes, is 7 cm off its middle."""
FRAMES = 8


def both_motions(default: np.ndarray) -> Motion:
    """Return a short motion of the G1, near its `default` (36,) pose, and after its last frame its mirror image."""
    model = g1_on_plane().compile()
    joints = [str(model.joint(j).name) for j in range(1, model.njnt)]
    images = [name.replace("left", "*").replace("right", "left").replace("*", "right") for name in joints]
    signs = [-1.0 if "roll" in name or "yaw" in name else 1.0 for name in joints]
    random = np.random.default_rng(0)
    table = np.tile(np.array([*default[:3], *default[4:7], default[3], *default[7:]]), (2 * FRAMES, 1))
    frames = np.linspace(0.2, 1.0, FRAMES)[:, None]
    table[:FRAMES, :3] += 0.1 * frames * random.normal(size=3)
    table[:FRAMES, 3:7] += 0.2 * frames * random.normal(size=4)
    table[:FRAMES, 3:7] /= np.linalg.norm(table[:FRAMES, 3:7], axis=1, keepdims=True)
    table[:FRAMES, 7:] += 0.3 * frames * random.normal(size=len(joints))
    there = table[:FRAMES]
    table[FRAMES:, :7] = there[:, :7] * [1, -1, 1, -1, 1, -1, 1]
    table[FRAMES:, 7:] = there[:, 7:][:, [joints.index(name) for name in images]] * signs
    return motion_from_table(model, table, fps=FPS)


@pytest.fixture(scope="module", params=MEASURED)
def env(request: pytest.FixtureRequest) -> ManagerEnv:
    """Two environments that nothing makes different from each other."""
    task = load_task(request.param)
    limits = {name: term for name, term in task.terminations.items() if term.time_out}
    quiet = {"events": {}, "curriculum": {}, "terminations": limits, "randomize_initial_episode_length": False}
    task = dataclasses.replace(task, **quiet)
    model = task.model().compile()
    if "motion" in task.commands:
        command = task.commands["motion"]
        params = {**command.params, "motion": lambda: both_motions(model.key("default").qpos)}
        task = dataclasses.replace(task, commands={"motion": dataclasses.replace(command, params=params)})
    return ManagerEnv(request.param, task, make_sim(model, 2, device=CPU, num_substeps=4, backend="mujoco"))


def place(env: ManagerEnv, qpos: torch.Tensor, qvel: torch.Tensor, *, on_patch: tuple[float, float]) -> None:
    """Put the first robot into a state and the second into its mirror image, `on_patch` [m] from stairs' middle."""
    qpos[0, :2] += torch.tensor(on_patch)
    mirror = mirror_of(env)
    assert mirror is not None
    image = mirrored_state(env, mirror.actions, qpos, qvel)
    qpos[1], qvel[1] = image[0][0], image[1][0]
    if "spawns" in env.trackers:
        spawns = env.trackers["spawns"]
        spawns.row.fill_(6)
        spawns.column.fill_(1)
        spawns.place()
        qpos[:, :3] += spawns.origin
    env.sim.write_state(qpos, qvel, EVERYBODY)
    if "motion" in env.commands:
        env.commands["motion"].frame.copy_(torch.tensor([1, 1 + FRAMES]))
    env.refresh(NOBODY)


def act(env: ManagerEnv, steps: int) -> None:
    """Let both act at random, the second as the first one's mirror image does."""
    mirror = mirror_of(env)
    assert mirror is not None
    for _ in range(steps):
        action = 0.3 * torch.randn(env.num_actions)
        env.step(torch.stack([action, mirror.actions(action)]))


def compare(env: ManagerEnv, name: str, *, atol: float, rtol: float) -> None:
    """Compare one term of the second with the mirror image of the first one's; robots are not exactly symmetric."""
    mirror = mirror_of(env)
    assert mirror is not None
    critic, columns = env.observe()["critic"], env.observations.slices["critic"][name]
    seen, expected = critic[1, columns], mirror.observations["critic"](critic[0])[columns]
    torch.testing.assert_close(seen, expected, atol=atol, rtol=rtol, msg=lambda text: f"{name}: {text}")
    assert float((seen - critic[0, columns]).abs().max()) > 3 * atol, f"{name} says nothing"


def test_applied_twice_it_is_the_original(env: ManagerEnv) -> None:
    mirror = mirror_of(env)
    assert mirror is not None
    for reflection, dim in [
        *((mirror.observations[group], dim) for group, dim in env.observation_dims.items()),
        (mirror.actions, env.num_actions),
    ]:
        values = torch.randn(3, dim)
        assert not torch.equal(reflection(values), values)
        assert torch.equal(reflection(reflection(values)), values)


def test_a_mirrored_state_under_mirrored_actions_is_observed_mirrored(env: ManagerEnv) -> None:
    env.reset()
    torch.manual_seed(0)
    qpos, qvel = env.sim.qpos.clone(), env.sim.qvel.clone()
    if env.name == "cartpole-balance":
        qpos[0], qvel[0] = torch.tensor([0.3, 0.1]), torch.tensor([-0.2, 0.5])
        qpos[1], qvel[1] = -qpos[0], -qvel[0]
        env.sim.write_state(qpos, qvel, EVERYBODY)
    else:
        qpos[0, 2] += 0.5  # in the air: contacts need not be found in the mirrored order
        qpos[0, 3:7] = torch.nn.functional.normalize(torch.tensor([1.0, 0.2, -0.1, 0.3]), dim=0)
        qpos[0, 7:] += 0.1 * torch.randn(env.num_actions)
        qvel[0] = 0.5 * torch.randn(qvel.shape[1])
        place(env, qpos, qvel, on_patch=(1.6, 0.7))
    act(env, 3)
    for name in MEASURED[env.name]:
        compare(env, name, atol=0.03 if name == "joint_vel" else 0.003, rtol=0.003)


@pytest.mark.parametrize("env", [name for name in MEASURED if "velocity" in name], indirect=True)
def test_feet_touch_the_ground_on_the_mirrored_side(env: ManagerEnv) -> None:
    env.reset()
    torch.manual_seed(0)
    qpos, qvel = env.sim.qpos.clone(), env.sim.qvel.clone()
    qpos[0, 3:7] = torch.nn.functional.normalize(torch.tensor([1.0, -0.2, 0.0, 0.3]), dim=0)
    qpos[0, 7:] += 0.05 * torch.randn(env.num_actions)
    qvel[0, 2] = -0.5
    place(env, qpos, qvel, on_patch=(0.0, 0.0))
    act(env, 3)
    touching = env.trackers["feet"].in_contact[0]
    assert touching.any()
    assert not touching.all()
    for name in ("foot_contact", "foot_air_time"):
        compare(env, name, atol=0.006, rtol=0.0)
    compare(env, "foot_contact_forces", atol=0.7, rtol=0.0)  # logarithms of forces that are seldom quite the same


def test_a_term_without_an_image_is_named(env: ManagerEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = env.task.mirror
    assert whole is not None

    def lacking(env: ManagerEnv):
        image = whole(env)
        return dataclasses.replace(image, observations=dict(list(image.observations.items())[1:]))

    monkeypatch.setattr(env, "task", dataclasses.replace(env.task, mirror=lacking))
    with pytest.raises(ConfigError, match="does not say what the mirror image of"):
        mirror_of(env)
    monkeypatch.setattr(env, "task", dataclasses.replace(env.task, mirror=None))
    assert mirror_of(env) is None


@pytest.mark.parametrize("env", ["g1-velocity-flat"], indirect=True)
def test_joints_of_the_two_sides_trade_places_with_the_sign_of_their_axes(env: ManagerEnv) -> None:
    reflection, names = joint_reflection(env, [("left_", "right_")]), env.joints.names
    found = {name: (names[reflection.source[i]], reflection.sign[i]) for i, name in enumerate(names)}
    assert found["left_hip_pitch_joint"] == ("right_hip_pitch_joint", 1.0)
    assert found["right_hip_roll_joint"] == ("left_hip_roll_joint", -1.0)
    assert found["left_knee_joint"] == ("right_knee_joint", 1.0)
    assert found["waist_yaw_joint"] == ("waist_yaw_joint", -1.0)
    assert found["waist_pitch_joint"] == ("waist_pitch_joint", 1.0)


@pytest.mark.parametrize("env", ["g1-tracking"], indirect=True)
def test_a_motion_has_no_image_where_the_default_pose_has_none(
    env: ManagerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    crooked = env.joints.default_pos.clone()
    crooked[env.joints.names.index("waist_yaw_joint")] = 0.1
    monkeypatch.setattr(env.joints, "default_pos", crooked)
    with pytest.raises(ValueError, match="no mirror image of itself"):
        mirror_of(env)


def test_blocks_are_swapped_and_repeated() -> None:
    feet = Reflection.swap(2, 1.0, -1.0)
    values = torch.arange(8.0)
    assert feet.on(CPU)(values).tolist() == [2.0, -3.0, 0.0, -1.0, 6.0, -7.0, 4.0, -5.0]
    history = Reflection.signs(1.0, -1.0).repeated(2)
    assert history.on(CPU)(torch.arange(4.0)).tolist() == [0.0, -1.0, 2.0, -3.0]
