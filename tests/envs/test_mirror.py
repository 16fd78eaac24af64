"""Mirror images: applied twice they are the original, and the simulation agrees with them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from hpclab.envs.manager import ManagerEnv
from hpclab.envs.mirror import Reflection
from hpclab.envs.sim.make import make_sim
from hpclab.envs.tasks import load_task
from hpclab.envs.terms.mirror import AXIAL, POLAR, joint_reflection, mirror_of
from hpclab.errors import ConfigError

CPU = torch.device("cpu")
SIDES = {"g1-velocity-flat": [("left_", "right_")], "go1-velocity-flat": [("FL_", "FR_"), ("RL_", "RR_")]}
TASKS = ["cartpole-balance", *SIDES]
MEASURED = {
    "g1-velocity-flat": ("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "foot_height"),
    "go1-velocity-flat": ("base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "foot_height"),
    "cartpole-balance": ("cart_position", "pole_direction", "velocities"),
}
"""Terms that follow from the physics alone; but the Go1's IMU, whose velocity it observes, is 7 cm off its middle."""


@pytest.fixture(scope="module", params=TASKS)
def env(request: pytest.FixtureRequest) -> ManagerEnv:
    """Two environments that nothing makes different from each other."""
    task = load_task(request.param)
    task = dataclasses.replace(task, events={}, curriculum={}, randomize_initial_episode_length=False)
    sim = make_sim(
        task.model(), 2, device=CPU, num_substeps=4, backend="mujoco", threads=1, njmax=task.njmax, nconmax=task.nconmax
    )
    return ManagerEnv(request.param, task, sim)


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
    mirror = mirror_of(env)
    assert mirror is not None
    env.reset()
    torch.manual_seed(0)
    qpos, qvel = env.sim.qpos.clone(), env.sim.qvel.clone()
    if env.name in SIDES:
        joints = joint_reflection(env, SIDES[env.name]).on(CPU)
        qpos[0, 2] += 0.5  # in the air: contacts need not be found in the mirrored order
        qpos[0, 7:] += 0.1 * torch.randn(env.num_actions)
        qvel[0] = 0.5 * torch.randn(qvel.shape[1])
        turn = torch.nn.functional.normalize(torch.tensor([1.0, 0.2, -0.1, 0.3]), dim=0)
        qpos[0, 3:7] = turn
        qpos[1, :3], qvel[1, :3] = POLAR.on(CPU)(qpos[0, :3]), POLAR.on(CPU)(qvel[0, :3])
        qpos[1, 3], qpos[1, 4:7] = turn[0], AXIAL.on(CPU)(turn[1:])
        qvel[1, 3:6] = AXIAL.on(CPU)(qvel[0, 3:6])
        default = env.joints.default_pos
        qpos[1, 7:], qvel[1, 6:] = default + joints(qpos[0, 7:] - default), joints(qvel[0, 6:])
    else:
        qpos[0], qvel[0] = torch.tensor([0.3, 0.1]), torch.tensor([-0.2, 0.5])
        qpos[1], qvel[1] = -qpos[0], -qvel[0]
    env.sim.write_state(qpos, qvel, torch.ones(2, dtype=torch.bool))
    env.sim.forward()
    for _ in range(3):
        action = 0.3 * torch.randn(env.num_actions)
        env.step(torch.stack([action, mirror.actions(action)]))
    critic, reflection = env.observe()["critic"], mirror.observations["critic"]
    for name in MEASURED[env.name]:
        columns = env.observations.slices["critic"][name]
        seen, expected = critic[1, columns], reflection(critic[0])[columns]
        # The robots themselves are not exactly symmetric.
        torch.testing.assert_close(seen, expected, atol=0.03, rtol=0.03, msg=lambda text, name=name: f"{name}: {text}")
        assert float((seen - critic[0, columns]).abs().max()) > 0.05, f"{name} says nothing"


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


def test_joints_of_the_two_sides_trade_places_with_the_sign_of_their_axes(env: ManagerEnv) -> None:
    if env.name != "g1-velocity-flat":
        pytest.skip("of the G1")
    reflection, names = joint_reflection(env, SIDES[env.name]), env.joints.names
    found = {name: (names[reflection.source[i]], reflection.sign[i]) for i, name in enumerate(names)}
    assert found["left_hip_pitch_joint"] == ("right_hip_pitch_joint", 1.0)
    assert found["right_hip_roll_joint"] == ("left_hip_roll_joint", -1.0)
    assert found["left_knee_joint"] == ("right_knee_joint", 1.0)
    assert found["waist_yaw_joint"] == ("waist_yaw_joint", -1.0)
    assert found["waist_pitch_joint"] == ("waist_pitch_joint", 1.0)


def test_blocks_are_swapped_and_repeated() -> None:
    feet = Reflection.swap(2, 1.0, -1.0)
    values = torch.arange(8.0)
    assert feet.on(CPU)(values).tolist() == [2.0, -3.0, 0.0, -1.0, 6.0, -7.0, 4.0, -5.0]
    history = Reflection.signs(1.0, -1.0).repeated(2)
    assert history.on(CPU)(torch.arange(4.0)).tolist() == [0.0, -1.0, 2.0, -3.0]
