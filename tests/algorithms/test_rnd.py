"""Random network distillation: its rewards, their weights and scales, and what ranks share of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hpclab.algorithms.ppo import PPO
from hpclab.algorithms.rnd import RandomNetworkDistillation
from hpclab.config.algorithms import RNDSection
from hpclab.config.schema import RunConfig, SyncSection
from hpclab.envs.vec_env import EnvironmentSpec, Step
from hpclab.errors import ConfigError
from hpclab.models.normalizers import ReturnScaler
from hpclab.storage.rollout import RolloutStorage
from tests.algorithms.scripted import CPU, make_config, make_ppo, script, train
from tests.distributed.ranks import run_on_ranks

T, N, D = 4, 5, 3


def make(preset: str = "mjlab", **settings: Any) -> RandomNetworkDistillation:
    torch.manual_seed(0)
    sync = SyncSection(preset=preset).resolved()
    return RandomNetworkDistillation(
        RNDSection(**settings), sync, num_observations=D, num_envs=N, step_dt=0.02, gamma=0.9, device=CPU
    )


def rollout(seed: int = 1) -> tuple[RolloutStorage, dict[str, torch.Tensor]]:
    storage = RolloutStorage(T, N, {"actor": D, "critic": D}, 2, CPU)
    generator = torch.Generator().manual_seed(seed)
    storage.observations["actor"].copy_(torch.randn(T, N, D, generator=generator))
    storage.rewards.fill_(1.0)
    return storage, {"actor": torch.randn(N, D, generator=generator)}


def test_the_reward_is_the_distance_of_the_networks_where_a_step_led_to() -> None:
    rnd = make(weight=2.0)
    storage, last = rollout()
    assert rnd.finish_rollout(storage, last) == []
    reached = torch.cat([storage.observations["actor"][1:], last["actor"][None]])
    expected = (rnd.target(reached) - rnd.predictor(reached)).norm(dim=-1) * 2.0 * 0.02
    torch.testing.assert_close(storage.rewards, 1.0 + expected)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, [3.0] * 8),
        ({"schedule": "step", "final_step": 6, "final_weight": 1.0}, [3.0] * 5 + [1.0] * 3),
        ({"schedule": "linear", "initial_step": 2, "final_step": 6}, [3.0, 3.0, 2.25, 1.5, 0.75, 0.0, 0.0, 0.0]),
    ],
    ids=["constant", "step", "linear"],
)
def test_the_weight_follows_its_schedule_over_rollouts(settings: dict[str, Any], weights: list[float]) -> None:
    rnd = make(weight=3.0, **settings)
    found = torch.cat([rnd._weights(4), rnd._weights(4)]) / 0.02
    torch.testing.assert_close(found, torch.tensor(weights))
    assert int(rnd.num_steps) == 8


def test_local_moments_see_a_step_before_it_is_rewarded_and_merged_ones_after_the_update() -> None:
    storage, last = rollout()
    reached = torch.cat([storage.observations["actor"][1:], last["actor"][None]])
    local, merged = (make(preset, state_normalization=True) for preset in ("mjlab", "global"))
    assert local.finish_rollout(storage, last) == []
    assert local.state_normalizer is not None
    torch.testing.assert_close(local.state_normalizer.mean[0], reached.flatten(0, 1).mean(0))
    measured = merged.finish_rollout(storage, last)
    assert merged.state_normalizer is not None
    assert int(merged.state_normalizer.count) == 0
    merged.merge(iter(measured))
    torch.testing.assert_close(merged.state_normalizer.mean[0], reached.flatten(0, 1).mean(0))


def test_returns_are_scaled_by_the_deviation_of_their_discounted_sums() -> None:
    scaler = ReturnScaler(2, 0.5)
    first = scaler.update(torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(first, torch.tensor([1.0, 3.0]))  # deviation of (1, 3): 1
    second = scaler.update(torch.tensor([0.0, 2.0]))
    std = torch.tensor([1.0, 3.0, 0.5, 3.5]).std(unbiased=False)
    torch.testing.assert_close(second, torch.tensor([0.0, 2.0]) / std)
    assert bool(torch.isfinite(ReturnScaler(2, 0.5).update(torch.ones(2))).all()), "no deviation yet"


def test_the_predictor_learns_what_it_sees_and_the_target_stays() -> None:
    config = make_config(6, SyncSection(), algorithm={"rnd": RNDSection(learning_rate=1e-2)})
    ppo = make_ppo(config, 6)
    before = [parameter.clone() for parameter in ppo.extensions[0].target.parameters()]
    data = script(6, 1)
    losses = [train(ppo, data, range(1))[0] for _ in range(8)]
    assert float(losses[-1]["rnd_loss"]) < 0.5 * float(losses[0]["rnd_loss"])
    assert float(losses[-1]["intrinsic_reward"]) < float(losses[0]["intrinsic_reward"])
    assert all(torch.equal(a, b) for a, b in zip(before, ppo.extensions[0].target.parameters(), strict=True))


def test_a_group_that_the_task_lacks_is_named() -> None:
    config = make_config(6, SyncSection(), algorithm={"rnd": RNDSection(group="camera")})
    with pytest.raises(ConfigError, match="the task has actor, critic, but not 'camera'"):
        make_ppo(config, 6)


@pytest.mark.distributed
@pytest.mark.parametrize("setting", ["local", "broadcast"])
def test_the_target_is_each_ranks_own_or_rank_0s(setting: str) -> None:
    def start(collectives):
        config = make_config(4, SyncSection(rnd_target=setting), algorithm={"rnd": RNDSection()})
        ppo = make_ppo(config, 4, collectives, seed=collectives.rank)
        ppo.broadcast_parameters()
        return ppo.state_dict()["rnd"], "target" in ppo.shared_state_dict()["rnd"]

    (first, shared), (second, _) = run_on_ranks(start, 2)
    assert torch.equal(first["predictor"]["0.weight"], second["predictor"]["0.weight"])
    assert torch.equal(first["target"]["0.weight"], second["target"]["0.weight"]) == (setting == "broadcast")
    assert shared == (setting == "broadcast")


LENGTH, EPISODE, REWARDED_FROM = 4.0, 64, 3.2


def seen(position: torch.Tensor) -> torch.Tensor:
    """(N, 17) how near a position is to each of as many places."""
    return torch.exp(-((position[:, None] - torch.linspace(0.0, LENGTH, 17)) / 0.25).square())


def shares_at_the_end(seed: int, **extensions: Any) -> list[float]:
    """Train in a corridor that is rewarded at its end alone; in every other part of it, forward is to act backwards.

    Returns:
        The share of each rollout's steps that were rewarded.
    """
    num_envs, steps = 16, 32
    settings = {"num_steps_per_env": steps, "num_learning_epochs": 4, "num_mini_batches": 2, "gamma": 0.98}
    settings |= {"schedule": "fixed", "learning_rate": 3e-3, "entropy_coef": 0.0}
    network = {"hidden_dims": (32,), "obs_normalization": False}
    config = RunConfig.model_validate(
        {
            "task": "corridor",
            "env": {"num_envs": num_envs},
            "algorithm": settings | extensions,
            "actor": network,
            "critic": network,
            "sync": {"preset": "global"},
        }
    )
    torch.manual_seed(seed)
    dims = {"actor": 17, "critic": 17}
    ppo = PPO(config, EnvironmentSpec(observation_dims=dims, num_actions=1, num_envs=num_envs, device=CPU))
    position, age = 0.2 * torch.rand(num_envs), torch.randint(0, EPISODE, (num_envs,))
    observations = {"actor": seen(position), "critic": seen(position)}
    found = []
    for _ in range(40):
        ppo.start_rollout()
        rewarded = 0.0
        for _ in range(steps):
            forward = 1.0 - 2.0 * (position.floor() % 2)
            move = 0.15 * forward * ppo.act(observations)[:, 0].tanh()
            position, age = (position + move).clamp(0.0, LENGTH), age + 1
            rewards, dones = (position > REWARDED_FROM).float(), age >= EPISODE
            rewarded += float(rewards.mean()) / steps
            position, age = position.masked_fill(dones, 0.0), age.masked_fill(dones, 0)
            observations = {"actor": seen(position), "critic": seen(position)}
            ppo.process_step(Step(observations, rewards, dones, dones))
        ppo.finish_rollout(observations)
        ppo.update()
        found.append(rewarded)
    return found


def test_it_finds_a_reward_that_is_missed_without_it() -> None:
    networks = {"num_outputs": 8, "predictor_hidden_dims": (32,), "target_hidden_dims": (32,)}
    curious = shares_at_the_end(2, rnd={"weight": 0.3, "reward_normalization": True, **networks})
    assert max(shares_at_the_end(2)) == 0.0
    assert sum(curious[-5:]) / 5 > 0.3
