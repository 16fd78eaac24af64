"""The environment as a whole: step order, resets, time-outs, totals, checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hpclab.config.schema import EnvSection, RunConfig
from hpclab.config.tasks import task_names
from hpclab.envs.make import make_env
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import ObservationTerm, RewardTerm, TaskSpec, Term
from hpclab.envs.tasks import load_task
from hpclab.envs.terms import drives
from hpclab.envs.vec_env import Step, VecEnv
from hpclab.errors import CheckpointError, ConfigError

CPU = torch.device("cpu")
N = 6


def build(name: str, change: Callable[[TaskSpec], TaskSpec] = lambda spec: spec, num_envs: int = N) -> ManagerEnv:
    torch.manual_seed(3)
    spec = change(load_task(name))
    sim = make_sim(spec.model(), num_envs, device=CPU, num_substeps=spec.decimation)
    return ManagerEnv(name, spec, sim)


def with_fields(**fields: Any) -> Callable[[TaskSpec], TaskSpec]:
    return lambda spec: dataclasses.replace(spec, **fields)


def actions(env: ManagerEnv, steps: int, std: float = 0.5) -> Tensor:
    return torch.randn(steps, env.num_envs, env.num_actions, generator=torch.Generator().manual_seed(5)) * std


def flatten(step: Step) -> list[Tensor]:
    return [*(values.clone() for values in step.observations.values()), step.rewards, step.dones, step.time_outs]


def test_balanced_pole_earns_exactly_the_documented_maximum() -> None:
    env = build("cartpole-balance", with_fields(events={}, randomize_initial_episode_length=False))
    env.reset()
    total = torch.zeros(N)
    for _ in range(env.max_episode_length):
        step = env.step(torch.zeros(N, 1))
        total += step.rewards
    assert total.tolist() == pytest.approx([10.0] * N, rel=1e-5)
    assert step.dones.all()
    assert step.time_outs.all()
    totals = env.read_episode_totals()
    assert totals.count.item() == N
    assert totals.sums["Episode_Reward/upright"].item() == pytest.approx(0.8 * N, rel=1e-5)
    assert totals.sums["Episode_Termination/time_out"].item() == N
    assert totals.sums["Episode_Termination/pole_fell"].item() == 0
    assert env.read_episode_totals().count.item() == 0


def test_swingup_is_worth_the_most_upright_and_nothing_hanging() -> None:
    env = build("cartpole-swingup", with_fields(events={}))
    env.reset()  # upright, since the start event is off
    assert env.step(torch.zeros(N, 1)).rewards.tolist() == pytest.approx([env.step_dt] * N)
    hanging = build("cartpole-swingup")
    hanging.reset()
    assert hanging.step(torch.zeros(N, 1)).rewards.max() < 0.01 * env.step_dt


def test_fallen_pole_terminates_and_only_its_environment_is_reset() -> None:
    env = build("cartpole-balance", with_fields(randomize_initial_episode_length=False))
    env.reset()
    env.step(torch.full((N, 1), 0.1))
    qpos, qvel = env.sim.qpos.clone(), env.sim.qvel.clone()
    qpos[2, 1] = 0.7
    env.sim.write_state(qpos, qvel, torch.arange(N) == 2)
    step = env.step(torch.full((N, 1), 0.1))
    assert step.dones.tolist() == [i == 2 for i in range(N)]
    assert not step.time_outs.any()
    assert env.episode_length.tolist() == [0 if i == 2 else 2 for i in range(N)]
    assert (env.actions[:, 0] == 0).tolist() == step.dones.tolist()
    assert (env.sim.qpos[:, 1].abs() <= 0.1).all()
    assert env.sim.qpos[2, 1] == torch.atan2(step.observations["actor"][2, 2], step.observations["actor"][2, 1])
    moved = (env.sim.qpos - qpos).abs().max(dim=1).values
    assert (moved[torch.arange(N) != 2] < 0.01).all()


def test_no_term_takes_the_place_of_the_check_for_divergence() -> None:
    spec = load_task("cartpole-balance")
    with pytest.raises(ValueError, match="may not be called diverged"):
        build("cartpole-balance", with_fields(terminations={"diverged": spec.terminations["time_out"]}))


def test_terms_that_differ_in_an_array_are_evaluated_apart() -> None:
    def scaled(env: ManagerEnv, *, by: Tensor) -> Tensor:
        return env.joints.pos * by

    terms = [ObservationTerm(scaled, {"by": torch.tensor(factors)}) for factors in ([1.0, 2.0], [3.0, 4.0])]
    env = build("cartpole-balance", with_fields(observations={"actor": {"a": terms[0]}, "critic": {"b": terms[1]}}))
    observations = env.reset()
    torch.testing.assert_close(observations["critic"], observations["actor"] * torch.tensor([3.0, 2.0]))


def test_termination_wins_over_a_time_out_in_the_same_step() -> None:
    env = build("cartpole-balance")
    env.reset()
    env.episode_length.fill_(env.max_episode_length - 1)
    qpos = env.sim.qpos.clone()
    qpos[0, 1] = 0.7
    env.sim.write_state(qpos, env.sim.qvel.clone(), torch.arange(N) == 0)
    step = env.step(torch.zeros(N, 1))
    assert step.dones.all()
    assert step.time_outs.tolist() == [False] + [True] * (N - 1)


def test_diverged_world_terminates_and_starts_again_finite() -> None:
    env = build("g1-velocity-flat")
    env.reset()
    qvel = env.sim.qvel.clone()
    qvel[1] = torch.nan
    env.sim.write_state(env.sim.qpos.clone(), qvel, torch.arange(N) == 1)
    step = env.step(torch.zeros(N, env.num_actions))
    assert step.dones[1]
    assert not step.time_outs[1]
    assert env.read_episode_totals().sums["Episode_Termination/diverged"].item() == 1
    for values in [*step.observations.values(), step.rewards]:
        assert values.isfinite().all()
    assert env.step(torch.zeros(N, env.num_actions)).dones[1].item() is False


def test_broken_terms_count_as_nothing_and_unweighted_ones_are_not_evaluated() -> None:
    def bad(env: ManagerEnv, *, value: float) -> Tensor:
        return torch.full((env.num_envs,), value)

    def forbidden(env: ManagerEnv) -> Tensor:
        raise AssertionError("a term of weight 0 is not evaluated")

    rewards = {
        "nan": RewardTerm(bad, {"value": float("nan")}, weight=1.0),
        "infinite": RewardTerm(bad, {"value": float("-inf")}, weight=-1.0),
        "one": RewardTerm(bad, {"value": 1.0}, weight=2.0),
        "off": RewardTerm(forbidden, weight=0.0),
    }
    env = build("cartpole-balance", with_fields(rewards=rewards))
    env.reset()
    assert env.step(torch.zeros(N, 1)).rewards.tolist() == pytest.approx([2.0 * env.step_dt] * N)


def test_initial_episode_lengths_are_spread_where_the_task_says_so() -> None:
    env = build("cartpole-balance", num_envs=500)
    env.reset()
    assert env.episode_length.min() < 25
    assert env.episode_length.max() > 475
    together = build("cartpole-balance", with_fields(randomize_initial_episode_length=False))
    together.reset()
    assert together.episode_length.max() == 0


def test_observations_have_the_facts_sizes_and_are_renewed_in_place() -> None:
    env = build("g1-velocity-flat")
    observations = env.reset()
    assert env.observation_dims == {"actor": 99, "critic": 111}
    assert {group: tuple(values.shape) for group, values in observations.items()} == {
        "actor": (N, 99),
        "critic": (N, 111),
    }
    assert env.observe() is observations
    before = observations["actor"].clone()
    step = env.step(torch.zeros(N, env.num_actions))
    assert env.observe() is step.observations
    assert step.observations["actor"] is observations["actor"]
    assert not torch.equal(observations["actor"], before)


def test_noise_is_uniform_within_its_bounds_and_on_the_actor_alone() -> None:
    env = build("g1-velocity-flat", num_envs=400)
    env.reset()
    env.joints.encoder_bias.zero_()
    observations = env.observations.compute()
    shared = env.observations.slices["actor"]["command"].stop
    noise = observations["actor"] - observations["critic"][:, :shared]
    bounds = {"base_lin_vel": 0.5, "base_ang_vel": 0.2, "projected_gravity": 0.05, "joint_pos": 0.01, "joint_vel": 1.5}
    for name, columns in env.observations.slices["actor"].items():
        bound = bounds.get(name, 0.0)
        assert noise[:, columns].abs().max() <= bound * 1.001
        assert noise[:, columns].std().item() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_action_of_zero_holds_the_default_pose_and_bias_is_subtracted() -> None:
    env = build("g1-velocity-flat", with_fields(events={}))
    env.reset()
    env.joints.encoder_bias[0, 3] = 0.01
    raw = torch.zeros(N, env.num_actions)
    raw[1, 3] = 1.0
    env.step(raw)
    model = env.sim.model
    actuator = env.joints.actuators(model)[3]
    knee = env.joints.default_pos[3].item()
    assert env.joints.names[3] == "left_knee_joint"
    assert env.sim.ctrl[:3, actuator].tolist() == pytest.approx([knee - 0.01, knee + 0.350661, knee], abs=1e-6)
    default = torch.tensor(model.key("default").ctrl, dtype=torch.float32)
    torch.testing.assert_close(env.sim.ctrl[2], default)


@pytest.mark.parametrize("task", ["cartpole-balance", "g1-velocity-flat", "go1-velocity-rough", "g1-tracking"])
def test_resumed_environment_continues_bit_for_bit(task: str) -> None:
    env = build(task)
    sequence = actions(env, 40, std=1.5)
    env.reset()
    for action in sequence[:20]:
        env.step(action)
    state, generator = env.state_dict(), torch.get_rng_state()
    expected = [flatten(env.step(action)) for action in sequence[20:]]
    assert any(step[-2].any() for step in expected), "no episode ended: resets were not tried"
    totals = env.read_episode_totals()

    for resumed in (env, build(task)):  # in the same process, and as after a restart
        resumed.load_state_dict(state)
        torch.set_rng_state(generator)
        before = resumed.observe()
        assert all(torch.equal(before[group], state["observations"][group]) for group in before)
        for action, values in zip(sequence[20:], expected, strict=True):
            for value, wanted in zip(flatten(resumed.step(action)), values, strict=True):
                assert torch.equal(value, wanted)
        again = resumed.read_episode_totals()
        assert torch.equal(again.count, totals.count)
        assert all(torch.equal(again.sums[tag], totals.sums[tag]) for tag in totals.sums)


def test_a_delay_that_begins_anew_with_the_next_substep_does_so_after_a_resume() -> None:
    late = Term(drives.Delayed, {"action": load_task("cartpole-balance").action, "substeps": (2, 4)})
    env, resumed = (build("cartpole-balance", with_fields(action=late, decimation=4)) for _ in range(2))
    env.reset()
    env.step(torch.ones(N, 1))
    env.episode_length.fill_(env.max_episode_length - 1)
    assert env.step(torch.ones(N, 1)).dones.all()
    state, generator = env.state_dict(), torch.get_rng_state()
    expected = env.step(-torch.ones(N, 1)).observations["actor"]
    resumed.load_state_dict(state)
    torch.set_rng_state(generator)
    assert torch.equal(resumed.step(-torch.ones(N, 1)).observations["actor"], expected)


def test_states_hold_plain_values_that_are_safe_to_load(tmp_path: Any) -> None:
    env = build("g1-velocity-flat")
    env.reset()
    torch.save(env.state_dict(), tmp_path / "state.pt")
    env.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))


def test_state_of_another_task_or_size_is_refused() -> None:
    env = build("cartpole-balance")
    env.reset()
    with pytest.raises(CheckpointError, match="task is cartpole-balance in the checkpoint, cartpole-swingup"):
        build("cartpole-swingup").load_state_dict(env.state_dict())
    with pytest.raises(CheckpointError, match="num_envs is 6"):
        build("cartpole-balance", num_envs=4).load_state_dict(env.state_dict())


def test_reset_draws_commands_from_the_curriculum_stage_of_the_loaded_progress() -> None:
    env = build("g1-velocity-flat", num_envs=300)
    env.step_count.fill_(10_000 * 24)
    fresh = build("g1-velocity-flat", num_envs=300)
    fresh.load_progress_state_dict(env.progress_state_dict())
    fresh.reset()
    assert fresh.commands["twist"].value[:, 0].max() > 2.0


class NoDeviceSync(TorchDispatchMode):
    """Fails on operations that make the host wait, give shapes that depend on data, or copy numbers from the host.

    The last are `torch.tensor(...)` and `torch.where` with a number, which no graph can hold.
    """

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "index_put", "is_nonzero", "equal")
    FORBIDDEN += ("scalar_tensor", "lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert not any(name.startswith(word) for word in self.FORBIDDEN), f"{name} in a control step"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("task", task_names())
def test_control_step_never_waits_for_the_device(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("events", "manager", "terms.curriculum"):  # as on a device, where nobody looks at masks
        monkeypatch.setattr(f"hpclab.envs.{module}.nobody", lambda mask: False)
    env = build(task)
    env.reset()
    first, *others = actions(env, 4)
    env.step(first)  # makes views and constants, as the warm-up of a graph does
    with NoDeviceSync():
        for action in others:
            env.step(action)
        env.curriculum_levels()
    with pytest.raises(AssertionError, match="local_scalar"), NoDeviceSync():
        torch.zeros(1).item()


def test_make_env_follows_the_config() -> None:
    env: VecEnv = make_env(
        RunConfig(task="cartpole-balance", env=EnvSection(num_envs=8)), num_envs=3, device=CPU, threads=1
    )
    assert (env.num_envs, env.num_actions, env.step_dt, env.max_episode_length) == (3, 1, 0.02, 500)
    assert env.reset()["actor"].shape == (3, 5)
    assert env.read_diagnostics() == {}
    env.close()
    with pytest.raises(ConfigError, match="no task 'cartpole'; there are cartpole-balance"):
        make_env(RunConfig(task="cartpole"), num_envs=3, device=CPU, threads=1)
