"""Replays recorded PPO iterations (Gaussian policy, perceptrons) through the engine, one process per recorded rank."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpclab.algorithms.ppo import PPO
from hpclab.config.algorithms import PPOSection
from hpclab.config.models import ActorSection, CriticSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.collectives import Collectives, process_group
from hpclab.envs.vec_env import Step
from tools.oracles.report import Error, UnsupportedFormatError, relative_error, worst_by_key

TOLERANCE = 1e-4
TIMEOUT_S = 120.0

Arrays = dict[str, np.ndarray]

_BUFFERS = {"_mean": "mean", "_var": "var", "_std": "std", "count": "count"}


def check(path: Path) -> dict[str, Error]:
    """Replay every rank of the file and return the worst error by key.

    Raises:
        UnsupportedFormatError: the recording uses a part of PPO that this version does not have.
    """
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays["rank0/meta"]))
    _require_supported(meta, arrays)
    world_size = int(meta["world"])
    errors = _replay(meta, arrays, Collectives()) if world_size == 1 else _replay_on_ranks(path, world_size)
    return worst_by_key(errors)


def _require_supported(meta: dict[str, Any], arrays: Arrays) -> None:
    distribution = meta.get("distribution", "gaussian")
    if isinstance(distribution, dict):
        distribution = distribution["name"]
    found = [
        name
        for name, present in {
            "RND": meta.get("rnd") is not None,
            "symmetry": any(key.endswith("_sign") for key in arrays) or meta.get("symmetry") is not None,
            "recurrent networks": any("/rnn." in key or "/hidden/" in key for key in arrays),
            f"a {distribution} policy": distribution != "gaussian",
            f"the {meta.get('optimizer')} optimiser": meta.get("optimizer", "adam") != "adam",
        }.items()
        if present
    ]
    if found:
        raise UnsupportedFormatError(f"recordings with {found[0]} are not replayed by this version")


def _config(meta: dict[str, Any]) -> RunConfig:
    hidden_dims = tuple(meta["hidden_dims"])
    shared = {name: meta[name] for name in PPOSection.model_fields if name in meta}
    return RunConfig(
        task="recording",
        env=EnvSection(num_envs=meta["N"]),
        algorithm=PPOSection(num_steps_per_env=meta["T"], **shared),
        actor=ActorSection(
            hidden_dims=hidden_dims,
            activation=meta["activation"],
            init_std=meta["init_std"],
            std_type=meta["std_type"],
        ),
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
    for name, value in _models(arrays, f"{root}/init_before_broadcast").items():
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
            "dist0": rollout.means,
            "dist1": rollout.stds,
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
        errors += compare_models(at, "")
        counts = [collectives.counts[name] - before.get(name, 0) for name in ("all_reduce", "broadcast")]
        errors.append(relative_error("collectives", counts, arrays[f"{root}/collectives_per_iteration"], 0.0))
    return errors


@dataclass(frozen=True, slots=True)
class _Rank:
    rank: int
    world_size: int
    master_addr: str
    master_port: int


def _replay_rank(context: _Rank, path: Path, results: Path) -> None:
    """Replay one rank in its own process and leave its errors, or a traceback, in `results`."""
    try:
        torch.set_num_threads(1)
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays["rank0/meta"]))
        with process_group(context, device=torch.device("cpu"), timeout_s=TIMEOUT_S) as collectives:
            errors = _replay(meta, arrays, collectives)
        answer: dict[str, Any] = {"errors": [[e.key, e.worst, e.p95, e.tolerance, bool(e.ok)] for e in errors]}
    except Exception:
        answer = {"traceback": traceback.format_exc()}
    (results / f"{context.rank}.json").write_text(json.dumps(answer))


def _replay_on_ranks(path: Path, world_size: int) -> list[Error]:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, _environment(OMP_NUM_THREADS="1"):
        results, port = Path(folder), _free_port()
        contexts = [_Rank(rank, world_size, "127.0.0.1", port) for rank in range(world_size)]
        ranks = [spawn.Process(target=_replay_rank, args=(context, path, results), daemon=True) for context in contexts]
        try:
            for process in ranks:
                process.start()
            for process in ranks:
                process.join(TIMEOUT_S)
        finally:
            for process in ranks:
                process.kill()
                process.join()
        errors: list[Error] = []
        for rank in range(world_size):
            file = results / f"{rank}.json"
            answer = json.loads(file.read_text()) if file.exists() else {"traceback": "it ended without an answer"}
            if "traceback" in answer:
                raise RuntimeError(f"rank {rank} failed: {answer['traceback']}")
            errors += [Error(*row) for row in answer["errors"]]
    return errors


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
