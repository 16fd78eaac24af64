"""Replays recorded PPO iterations through the engine, one process per recorded rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpclab.algorithms.ppo import PPO
from hpclab.config.algorithms import PPOSection
from hpclab.config.models import ActorSection, CriticSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import Step
from tools.oracles.ranks import Arrays, load, replay
from tools.oracles.report import Error, UnsupportedFormatError, relative_error, worst_by_key

TOLERANCE = 1e-4

_BUFFERS = {"_mean": "mean", "_var": "var", "_std": "std", "count": "count"}
_DISTRIBUTIONS = {"gaussian": "gaussian", "heteroscedastic_gaussian": "state_dependent_gaussian", "beta": "beta"}


def check(path: Path) -> dict[str, Error]:
    """Replay every rank of the file and return the worst error by key.

    Raises:
        UnsupportedFormatError: the recording uses a part of PPO that this version does not have.
    """
    _require_supported(*load(path))
    return worst_by_key(replay(path, _replay))


def _require_supported(meta: dict[str, Any], arrays: Arrays) -> None:
    distribution = _distribution(meta)["name"]
    found = [
        name
        for name, present in {
            "RND": meta.get("rnd") is not None,
            "symmetry": any(key.endswith("_sign") for key in arrays) or meta.get("symmetry") is not None,
            "recurrent networks": any("/rnn." in key or "/hidden/" in key for key in arrays),
            f"a {distribution} policy": distribution not in _DISTRIBUTIONS,
            f"the {meta.get('optimizer')} optimiser": meta.get("optimizer", "adam") != "adam",
        }.items()
        if present
    ]
    if found:
        raise UnsupportedFormatError(f"recordings with {found[0]} are not replayed by this version")


def _distribution(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the policy's settings, which older recordings have at the top level."""
    found = meta.get("distribution", "gaussian")
    return found if isinstance(found, dict) else {"name": found} | {k: meta[k] for k in ("init_std", "std_type")}


def _config(meta: dict[str, Any]) -> RunConfig:
    hidden_dims = tuple(meta["hidden_dims"])
    shared = {name: meta[name] for name in PPOSection.model_fields if name in meta}
    policy = _distribution(meta)
    policy["distribution"] = _DISTRIBUTIONS[policy.pop("name")]
    return RunConfig(
        task="recording",
        env=EnvSection(num_envs=meta["N"]),
        algorithm=PPOSection(num_steps_per_env=meta["T"], **shared),
        actor=ActorSection(hidden_dims=hidden_dims, activation=meta["activation"], **policy),
        critic=CriticSection(hidden_dims=hidden_dims, activation=meta["activation"]),
        sync=SyncSection(preset="mjlab"),
    )


def _our_name(recorded: str) -> str:
    """Translate a parameter's or buffer's recorded name to ours."""
    head, _, leaf = recorded.rpartition(".")
    if head == "obs_normalizer":
        return f"normalizer.{_BUFFERS[leaf]}"
    return "distribution.std_param" if head == "distribution" else recorded


def _models(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    """Arrays under `prefix` that belong to a model, by `actor|critic/<our name>`."""
    found = {}
    for model in ("actor", "critic"):
        start = f"{prefix}/{model}/"
        found |= {
            f"{model}/{_our_name(key.removeprefix(start))}": value
            for key, value in arrays.items()
            if key.startswith(start)
        }
    return found


def _replay(meta: dict[str, Any], arrays: Arrays, collectives: Collectives) -> list[Error]:
    """Walk the recording of this rank: recorded observations, actions and permutations in, errors out."""
    root = f"rank{collectives.rank}"
    data = {
        name: torch.from_numpy(arrays[f"{root}/data/{name}"])
        for name in ("actor_obs", "critic_obs", "rew", "done", "tout")
    }
    order: list[Tensor] = []
    ppo = PPO(
        _config(meta),
        observation_dims={"actor": data["actor_obs"].shape[-1], "critic": data["critic_obs"].shape[-1]},
        num_actions=arrays[f"{root}/it0/actions"].shape[-1],
        num_envs=meta["N"],
        device=torch.device("cpu"),
        collectives=collectives,
        permutation=lambda num_samples, device: order.pop(),
    )
    parts = {"actor": ppo.actor, "critic": ppo.critic}

    def state() -> dict[str, Tensor]:
        return {f"{part}/{name}": value for part, model in parts.items() for name, value in model.state_dict().items()}

    def compare_models(prefix: str, key: str) -> list[Error]:
        ours = state()
        return [
            relative_error(f"{key}{name}", ours[name].numpy(), value, TOLERANCE)
            for name, value in _models(arrays, prefix).items()
        ]

    ours = state()
    start = "init_before_broadcast" if f"{root}/init_before_broadcast/actor/mlp.0.weight" in arrays else "init"
    for name, value in _models(arrays, f"{root}/{start}").items():
        ours[name].copy_(torch.from_numpy(value))
    ppo.broadcast_parameters()
    errors = compare_models(f"{root}/init", "init/")

    for iteration in range(meta["iterations"]):
        at = f"{root}/it{iteration}"
        before = dict(collectives.counts)
        ppo.start_rollout()
        for t in range(meta["T"]):
            index = iteration * meta["T"] + t
            observations = {"actor": data["actor_obs"][index], "critic": data["critic_obs"][index]}
            ppo.act(observations, torch.from_numpy(arrays[f"{at}/actions"][t]))
            after = {"actor": data["actor_obs"][index + 1], "critic": data["critic_obs"][index + 1]}
            ppo.process_step(Step(after, data["rew"][index + 1], data["done"][index + 1], data["tout"][index + 1]))
        ppo.finish_rollout(after)
        rollout = ppo.storage
        stored = {
            "values": rollout.values,
            "actions_log_prob": rollout.log_probs,
            "dist0": rollout.distribution[0],
            "dist1": rollout.distribution[1],
            "rewards": rollout.rewards,
            "dones": rollout.dones,
            "returns": rollout.returns,
            "advantages": rollout.advantages,
        }
        for name, value in stored.items():
            expected = arrays[f"{at}/{name}"].reshape(value.shape)
            errors.append(relative_error(name, value.numpy(), expected, TOLERANCE))
        order.append(torch.from_numpy(arrays[f"{at}/perm"]))
        losses = ppo.update()
        names = ("value_loss", "surrogate_loss", "entropy")
        for name, expected in zip(names, arrays[f"{at}/losses"], strict=True):
            errors.append(relative_error(name, float(losses[name]), expected, TOLERANCE))
        errors.append(relative_error("learning_rate", float(losses["learning_rate"]), arrays[f"{at}/lr"], TOLERANCE))
        for name, expected in _means_over_updates(arrays, f"{at}/updates").items():
            errors.append(relative_error(name, float(losses[name]), expected, TOLERANCE))
        errors += compare_models(at, "")
        if f"{root}/collectives_per_iteration" not in arrays:
            continue
        counts = [collectives.counts[name] - before.get(name, 0) for name in ("all_reduce", "broadcast")]
        errors.append(relative_error("collectives", counts, arrays[f"{root}/collectives_per_iteration"], 0.0))
    return errors


def _means_over_updates(arrays: Arrays, prefix: str) -> dict[str, float]:
    """Return what was recorded of every mini-batch as the losses report it: its mean, by our name."""
    if f"{prefix}/kl" not in arrays:
        return {}
    actor, critic = arrays[f"{prefix}/grad_norm"].mean(axis=0)
    return {"kl": float(arrays[f"{prefix}/kl"].mean()), "actor_grad_norm": actor, "critic_grad_norm": critic}
