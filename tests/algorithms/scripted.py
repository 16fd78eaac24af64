"""A scripted environment and the PPO runs that tests compare: the same samples, however they are spread over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hpclab.algorithms.ppo import PPO
from hpclab.config.algorithms import PPOSection
from hpclab.config.models import ActorSection, CriticSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.audit import leaves, name
from hpclab.distributed.collectives import Collectives
from hpclab.envs.mirror import Mirror, Reflection
from hpclab.envs.vec_env import EnvironmentSpec, Step
from tests.variants import VARIANTS

ACTOR_DIM, CRITIC_DIM, NUM_ACTIONS = 7, 9, 3
NUM_STEPS, NUM_MINI_BATCHES = 8, 4
CPU = torch.device("cpu")


def make_config(
    num_envs: int,
    sync: SyncSection,
    scope: str = "per_rank",
    algorithm: dict[str, Any] | None = None,
    variant: str = "plain",
) -> RunConfig:
    """A small run, with observation normalisation and the adaptive learning rate."""
    values = {"num_steps_per_env": NUM_STEPS, "num_mini_batches": NUM_MINI_BATCHES} | (algorithm or {})
    changes = VARIANTS[variant]
    return RunConfig(
        task="scripted",
        env=EnvSection(num_envs=num_envs, num_envs_scope=scope),
        algorithm=PPOSection.model_validate(values | changes.get("algorithm", {})),
        actor=ActorSection.model_validate({"hidden_dims": (16, 12)} | changes.get("actor", {})),
        critic=CriticSection.model_validate({"hidden_dims": (16, 12)} | changes.get("critic", {})),
        sync=sync,
    )


def make_ppo(config: RunConfig, num_envs: int, collectives: Collectives | None = None, seed: int = 1) -> PPO:
    """PPO on the CPU with parameters drawn from `seed`."""
    torch.manual_seed(seed)
    return PPO(config, spec(num_envs), collectives)


def spec(num_envs: int, device: torch.device = CPU) -> EnvironmentSpec:
    """What is known of the scripted environment."""
    dims = {"actor": ACTOR_DIM, "critic": CRITIC_DIM}
    return EnvironmentSpec(
        observation_dims=dims,
        num_actions=NUM_ACTIONS,
        num_envs=num_envs,
        device=device,
        mirror=lambda: mirror(device),
    )


def mirror(device: torch.device = CPU) -> Mirror:
    """A mirror in which every second number changes its sign."""
    dims = {"actor": ACTOR_DIM, "critic": CRITIC_DIM, "actions": NUM_ACTIONS}
    signs = {name: Reflection.signs(*((1.0, -1.0) * dim)[:dim]).on(device) for name, dim in dims.items()}
    return Mirror({"actor": signs["actor"], "critic": signs["critic"]}, signs["actions"])


def script(num_envs: int, iterations: int, seed: int = 7) -> dict[str, Tensor]:
    """What happens to `num_envs` environments whatever they do, (steps + 1, num_envs, ...); and the action noise."""
    generator = torch.Generator().manual_seed(seed)
    num = iterations * NUM_STEPS + 1

    def normal(*features: int) -> Tensor:
        return torch.randn(num, num_envs, *features, generator=generator)

    offset = torch.linspace(-2.0, 5.0, num_envs).unsqueeze(-1)
    dones = torch.rand(num, num_envs, generator=generator) < 0.15
    return {
        "actor": normal(ACTOR_DIM) * 2.0 + offset,
        "critic": normal(CRITIC_DIM) * 0.5 - offset,
        "rewards": normal(),
        "dones": dones,
        "time_outs": dones & (torch.rand(num, num_envs, generator=generator) < 0.5),
        "noise": normal(NUM_ACTIONS),
    }


def part(data: dict[str, Tensor], envs: slice | list[int]) -> dict[str, Tensor]:
    """The script of some of the environments."""
    return {name: values[:, envs] for name, values in data.items()}


def collect(ppo: PPO, data: dict[str, Tensor], iteration: int) -> None:
    """Walk one rollout of the script; actions are the policy's mean plus scripted noise."""
    ppo.start_rollout()
    for t in range(iteration * NUM_STEPS, (iteration + 1) * NUM_STEPS):
        observations = {"actor": data["actor"][t], "critic": data["critic"][t]}
        ppo.act(observations, ppo.act_inference(observations) + 0.8 * data["noise"][t])
        after = {"actor": data["actor"][t + 1], "critic": data["critic"][t + 1]}
        ppo.process_step(Step(after, data["rewards"][t + 1], data["dones"][t + 1], data["time_outs"][t + 1]))
    ppo.finish_rollout(after)


def train(
    ppo: PPO, data: dict[str, Tensor], iterations: range, after_each: Callable[[PPO], None] = lambda ppo: None
) -> list[dict[str, Tensor]]:
    """Train on the script and return the losses of each iteration."""
    losses = []
    for iteration in iterations:
        collect(ppo, data, iteration)
        losses.append(ppo.update())
        after_each(ppo)
    return losses


def snapshot(ppo: PPO) -> dict[str, Tensor]:
    """Copies of every parameter, buffer, optimiser moment and the learning rate, by name."""
    values = {f"actor/{key}": value.clone() for key, value in ppo.actor.state_dict().items()}
    values |= {f"critic/{key}": value.clone() for key, value in ppo.critic.state_dict().items()}
    for extension in ppo.extensions:
        parts = leaves(extension.state_dict(), (extension.name,))
        values |= {name(path): leaf.clone() for path, leaf in parts if isinstance(leaf, Tensor)}
    for index, state in ppo.optimizer.state_dict()["state"].items():
        values |= {f"optimizer/{index}/{key}": value.clone() for key, value in state.items()}
    return values | {"learning_rate": ppo.learning_rate.clone()}


def rank_orders(counts: list[int], seed: int) -> tuple[list[Tensor], Tensor]:
    """Matched permutations: one for each rank's samples, and the one for all samples on one rank.

    Mini-batch k of the latter holds exactly the samples of the ranks' mini-batches k. Rank r has environments
    sum(counts[:r]) onwards; every rank's samples must divide by the number of mini-batches.
    """
    generator = torch.Generator().manual_seed(seed)
    total, first = sum(counts), 0
    orders, batches = [], []
    for count in counts:
        assert count * NUM_STEPS % NUM_MINI_BATCHES == 0
        order = torch.randperm(count * NUM_STEPS, generator=generator)
        orders.append(order)
        batches.append((order // count * total + order % count + first).chunk(NUM_MINI_BATCHES))
        first += count
    return orders, torch.cat([torch.cat(parts) for parts in zip(*batches, strict=True)])
