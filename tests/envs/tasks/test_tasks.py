"""Every file of the tasks folder is a task."""

from __future__ import annotations

import mujoco
import pytest
import torch

from hpclab.config.tasks import task_names
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import load_task
from hpclab.envs.terms.mirror import mirror_of


def test_the_shipped_tasks_are_listed_with_a_summary() -> None:
    names = task_names()
    assert {"cartpole-balance", "cartpole-swingup", "g1-velocity-flat"} <= names.keys()
    assert all(summary.endswith(".") or summary for summary in names.values())
    assert all(len(summary) <= 120 for summary in names.values())


@pytest.mark.parametrize("name", task_names())
def test_every_task_is_complete(name: str) -> None:
    spec = load_task(name)
    assert isinstance(spec, TaskSpec)
    assert isinstance(spec.model().compile(), mujoco.MjModel)
    assert set(spec.observations) == {"actor", "critic"}
    assert any(term.time_out for term in spec.terminations.values())
    assert spec.rewards


def test_g1_settings_are_those_of_the_facts() -> None:
    spec = load_task("g1-velocity-flat")
    weights = {name: term.weight for name, term in spec.rewards.items()}
    assert weights == {
        "track_linear_velocity": 2.0,
        "track_angular_velocity": 2.0,
        "upright": 1.0,
        "pose": 1.0,
        "body_ang_vel": -0.05,
        "angular_momentum": -0.02,
        "dof_pos_limits": -1.0,
        "action_rate_l2": -0.1,
        "air_time": 0.0,
        "foot_clearance": -2.0,
        "foot_swing_height": -0.25,
        "foot_slip": -0.1,
        "soft_landing": -1e-5,
        "self_collisions": -1.0,
    }
    noise = {name: term.noise for name, term in spec.observations["actor"].items() if term.noise}
    assert noise == {
        "base_lin_vel": 0.5,
        "base_ang_vel": 0.2,
        "projected_gravity": 0.05,
        "joint_pos": 0.01,
        "joint_vel": 1.5,
    }
    assert not any(term.noise for term in spec.observations["critic"].values())
    assert (spec.decimation, spec.episode_length_s) == (4, 20.0)
    push = spec.events["push_robot"]
    assert push.interval_s == (1.0, 3.0)
    assert push.params["angular"] == ((-0.52, 0.52), (-0.52, 0.52), (-0.78, 0.78))
    twist = spec.commands["twist"].params
    assert (twist["standing"], twist["follow_heading"], twist["forward_only"]) == (0.1, 0.3, 0.2)
    assert twist["resample_s"] == (3.0, 8.0)
    stages = spec.curriculum["command_ranges"].params["stages"]
    assert [(stage.from_step, stage.vx, stage.yaw_rate) for stage in stages] == [
        (5000 * 24, (-1.5, 2.0), (-0.7, 0.7)),
        (10000 * 24, (-2.0, 3.0), (-0.7, 0.7)),
    ]


def test_go1_differs_from_the_g1_as_the_facts_say() -> None:
    spec, g1 = load_task("go1-velocity-flat"), load_task("g1-velocity-flat")
    weights = {name: term.weight for name, term in spec.rewards.items()}
    of_g1 = {name: term.weight for name, term in g1.rewards.items() if name != "self_collisions"}
    assert weights == of_g1 | {"body_ang_vel": 0.0, "angular_momentum": 0.0}
    assert spec.events["foot_friction"].params["range"] == (0.3, 1.5)
    assert spec.events["foot_friction_spin"].params["range"] == (1e-4, 2e-2)
    assert spec.events["foot_friction_roll"].params["range"] == (1e-5, 5e-3)
    standing, walking, running = spec.rewards["pose"].params["std"]
    assert (standing[r".*_hip_joint"], standing[r".*_calf_joint"]) == (0.05, 0.1)
    assert walking == running == {r".*_hip_joint": 0.3, r".*_thigh_joint": 0.3, r".*_calf_joint": 0.6}


def test_without_state_estimation_the_policy_misses_position_and_velocity_alone() -> None:
    full, measured = (load_task(f"g1-tracking{name}").observations for name in ("", "-no-state-estimation"))
    assert measured["critic"] == full["critic"]
    assert full["actor"].keys() - measured["actor"].keys() == {"motion_anchor_pos", "base_lin_vel"}
    assert measured["actor"].items() <= full["actor"].items()


@pytest.mark.parametrize(
    ("name", "actor", "critic"), [("g1-velocity-rough", 286, 298), ("go1-velocity-rough", 235, 259)]
)
def test_rough_tasks(name: str, actor: int, critic: int) -> None:
    spec = load_task(name)
    sim = make_sim(spec.model(), 7, device=torch.device("cpu"), num_substeps=spec.decimation)
    env = ManagerEnv(name, spec, sim)
    assert env.observation_dims == {"actor": actor, "critic": critic}
    observations = env.reset()
    place = {group: list(slices).index("height_scan") for group, slices in env.observations.slices.items()}
    assert place == {"actor": 7, "critic": 7}
    scan = observations["critic"][:, env.observations.slices["critic"]["height_scan"]]
    noisy = observations["actor"][:, env.observations.slices["actor"]["height_scan"]]
    assert 0.015 < (noisy - scan).abs().max() <= 0.02 + 1e-6  # 0.1 m times 0.2
    # the first environment stands on flat ground, 0.01 to 0.05 m above its default height
    height = float(sim.model.key("default").qpos[2])
    assert scan[0].min().item() == scan[0].max().item() == pytest.approx(0.2 * (height + 0.03), abs=0.2 * 0.021)
    mirror = mirror_of(env)
    assert mirror is not None
    for group, values in observations.items():
        image = mirror.observations[group](values)
        assert torch.equal(mirror.observations[group](image), values)
    row, column = env.trackers["spawns"].row, env.trackers["spawns"].column
    assert column.tolist() == list(range(7))
    near = env.sensor("root_pos")[:, :2] - env.trackers["spawns"].origin[:, :2]
    assert near.abs().max() <= 0.5
    before = row.clone()
    env.episode_length.fill_(env.max_episode_length)
    env.commands["twist"].hold(torch.zeros(7, 3))
    env.step(torch.zeros(7, env.num_actions))
    assert torch.equal(row, before)  # who is told to stand is not sent to easier ground
    env.episode_length.fill_(env.max_episode_length)
    env.commands["twist"].hold(torch.ones(7, 3))
    env.step(torch.zeros(7, env.num_actions))
    assert torch.equal(row, (before - 1).clamp(min=0))
