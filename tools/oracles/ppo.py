"""Replays recorded PPO iterations through the engine, one process per recorded rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpclab.algorithms.ppo import PPO
from hpclab.algorithms.rnd import RandomNetworkDistillation
from hpclab.config.algorithms import PPOSection, RNDSection, SymmetrySection
from hpclab.config.models import ActorSection, CriticSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.collectives import Collectives
from hpclab.envs.mirror import Mirror, Reflection, ReflectTensor
from hpclab.envs.vec_env import EnvironmentSpec, Step
from tools.oracles.names import our_name
from tools.oracles.ranks import Arrays, load, replay
from tools.oracles.report import Error, UnsupportedFormatError, relative_error, worst_by_key

TOLERANCE = 1e-4

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
    shared = {name: meta[name] for name in PPOSection.model_fields if name in meta and name not in ("rnd", "symmetry")}
    policy = _distribution(meta)
    rnd, symmetry = meta.get("rnd"), meta.get("symmetry")
    if rnd is not None:
        rnd = {name: value for name, value in rnd.items() if name not in ("state", "step_dt")}
        for name in ("predictor_hidden_dims", "target_hidden_dims"):
            rnd[name] = tuple(rnd[name])
        shared["rnd"] = RNDSection(group="rnd", **rnd)
    if symmetry is not None:
        coefficient = symmetry["mirror_loss_coeff"] if symmetry["use_mirror_loss"] else 0.0
        augments = symmetry["use_data_augmentation"]
        shared["symmetry"] = SymmetrySection(data_augmentation=augments, mirror_loss_coef=coefficient)
    policy["distribution"] = _DISTRIBUTIONS[policy.pop("name")]
    network = {"hidden_dims": tuple(meta["hidden_dims"]), "activation": meta["activation"], "rnn": meta.get("rnn")}
    return RunConfig(
        task="recording",
        env=EnvSection(num_envs=meta["N"]),
        algorithm=PPOSection(num_steps_per_env=meta["T"], **shared),
        actor=ActorSection(**network, **policy),
        critic=CriticSection(**network),
        sync=SyncSection(preset="mjlab"),
    )


def _models(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    """Arrays under `prefix` that belong to a model, by `actor|critic/<our name>`."""
    found = {}
    for model in ("actor", "critic", "rnd_predictor", "rnd_target"):
        start = f"{prefix}/{model}/"
        found |= {
            f"{model}/{our_name(key.removeprefix(start))}": value
            for key, value in arrays.items()
            if key.startswith(start)
        }
    return found


def _replay(meta: dict[str, Any], arrays: Arrays, collectives: Collectives) -> list[Error]:
    """Walk the recording of this rank: recorded observations, actions and permutations in, errors out."""
    root = f"rank{collectives.rank}"
    data = {name: torch.from_numpy(arrays[f"{root}/data/{name}"]) for name in ("rew", "done", "tout")}
    observed = {group: torch.from_numpy(arrays[f"{root}/data/{group}_obs"]) for group in ("actor", "critic")}
    if meta.get("rnd") is not None:
        observed["rnd"] = observed["actor"][..., slice(*meta["rnd"]["state"])]
    order: list[Tensor] = []
    spec = EnvironmentSpec(
        observation_dims={group: values.shape[-1] for group, values in observed.items()},
        num_actions=arrays[f"{root}/it0/actions"].shape[-1],
        num_envs=meta["N"],
        device=torch.device("cpu"),
        step_dt=meta["rnd"]["step_dt"] if meta.get("rnd") is not None else 1.0,
        mirror=lambda: _mirror(arrays, root),
    )
    ppo = PPO(_config(meta), spec, collectives, permutation=lambda num_samples, device: order.pop())
    parts: dict[str, torch.nn.Module] = {"actor": ppo.actor, "critic": ppo.critic}
    for extension in ppo.extensions:
        if isinstance(extension, RandomNetworkDistillation):
            parts |= {"rnd_predictor": extension.predictor, "rnd_target": extension.target}

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

    expected_losses, found_losses = [], []
    for iteration in range(meta["iterations"]):
        at = f"{root}/it{iteration}"
        before = dict(collectives.counts)
        ppo.start_rollout()
        for t in range(meta["T"]):
            index = iteration * meta["T"] + t
            observations = {group: values[index] for group, values in observed.items()}
            errors += _compare_memory(ppo, arrays, f"{at}/hidden", t)
            ppo.act(observations, torch.from_numpy(arrays[f"{at}/actions"][t]))
            after = {group: values[index + 1] for group, values in observed.items()}
            ppo.process_step(Step(after, data["rew"][index + 1], data["done"][index + 1], data["tout"][index + 1]))
        ppo.finish_rollout(after)
        errors += _compare_memory(ppo, arrays, f"{at}/hidden_after_rollout")
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
        if f"{at}/perm" in arrays:
            order.append(torch.from_numpy(arrays[f"{at}/perm"]))
        losses = ppo.update()
        expected_losses.append(_losses(arrays, at, [name for part in ppo.extensions for name in part.numbers[:1]]))
        found_losses.append({name: float(losses[name]) for name in expected_losses[-1]})
        errors += compare_models(at, "")
        if f"{root}/collectives_per_iteration" not in arrays:
            continue
        counts = [collectives.counts[name] - before.get(name, 0) for name in ("all_reduce", "broadcast")]
        errors.append(relative_error("collectives", counts, arrays[f"{root}/collectives_per_iteration"], 0.0))
    for name in expected_losses[0]:  # of all iterations together: one alone may be close to zero
        found, expected = ([losses[name] for losses in listed] for listed in (found_losses, expected_losses))
        errors.append(relative_error(name, found, expected, TOLERANCE))
    return errors


def _mirror(arrays: Arrays, root: str) -> Mirror:
    def on_cpu(name: str) -> ReflectTensor:
        return Reflection.signs(*arrays[f"{root}/data/{name}_sign"].tolist()).on(torch.device("cpu"))

    return Mirror({group: on_cpu(group) for group in ("actor", "critic")}, on_cpu("action"))


def _losses(arrays: Arrays, prefix: str, added: list[str]) -> dict[str, float]:
    """Return an iteration's recorded losses, and the means of what was recorded of its mini-batches, by our names."""
    names = ("value_loss", "surrogate_loss", "entropy", *added)
    found = dict(zip(names, arrays[f"{prefix}/losses"], strict=True)) | {"learning_rate": arrays[f"{prefix}/lr"]}
    if f"{prefix}/updates/kl" in arrays:
        actor, critic = arrays[f"{prefix}/updates/grad_norm"].mean(axis=0)
        found |= {"kl": arrays[f"{prefix}/updates/kl"].mean(), "actor_grad_norm": actor, "critic_grad_norm": critic}
    return {name: float(value) for name, value in found.items()}


def _compare_memory(ppo: PPO, arrays: Arrays, prefix: str, step: int | None = None) -> list[Error]:
    """Compare what is remembered now with what was recorded: before a step, or after the rollout."""
    errors = []
    for name, tensor in ppo.memory_state_dict().items():
        expected = arrays[f"{prefix}/{name.replace('/', '')}"]
        key = f"memory/{name}" if step is not None else f"memory after the rollout/{name}"
        errors.append(relative_error(key, tensor.numpy(), expected if step is None else expected[step], TOLERANCE))
    return errors
