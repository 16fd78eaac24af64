"""RSL-RL 5.x checkpoints of PPO in our names, and back: actor, critic, normalisers, optimiser, iteration.

A file is {actor_state_dict, critic_state_dict, optimizer_state_dict, iter, infos}. `iter` numbers the last iteration
that was run, from 0 on. mjlab keeps the control steps of each environment in infos["env_state"]["common_step_counter"].
The optimiser counts parameters through in the order of the two dictionaries, which is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpclab.checkpoint.state import State, from_bytes
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError

_MODELS = ("actor", "critic")
_KEYS = {"actor_state_dict", "critic_state_dict", "optimizer_state_dict", "iter"}
_NORMALIZER = {
    "obs_normalizer._mean": "normalizer.mean",
    "obs_normalizer._var": "normalizer.var",
    "obs_normalizer._std": "normalizer.std",
    "obs_normalizer.count": "normalizer.count",
}
_OURS_ALONE = {"normalizer.exact_count", "normalizer.exact_mean", "normalizer.exact_m2"}
_DEVIATION = {"scalar": "distribution.std_param", "log": "distribution.log_std_param"}
_OUR_DEVIATION = "distribution.std_param"
_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
OPTIMIZERS = tuple(_OPTIMIZERS)
"""Names of `algorithm.optimizer` whose state both sides keep alike."""
EXPORTED = frozenset({"actor", "critic", "optimizer", "learning_rate"})
"""Parts of the state of PPO that a file has a place for."""

Models = dict[str, dict[str, Tensor]]
"""Tensors of actor and critic, by model and name."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of RSL-RL as it is."""

    path: Path
    models: Models
    optimizer: dict[str, Any]
    """State of torch's optimiser over the parameters of both models."""
    iterations: int
    """Iterations done."""
    control_steps: int | None
    """Control steps of each environment; None: the file does not say."""
    left_out: tuple[str, ...]
    """What else the file holds."""


def read(path: Path) -> Recorded:
    """Read a file; nothing in it is run.

    Raises:
        ConfigError: there is no such file, or it is no RSL-RL 5.x checkpoint of PPO.
        CheckpointError: it is damaged, or holds more than tensors and plain values.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    file = from_bytes(data, str(path))
    if missing := _KEYS - file.keys():
        held = ", ".join(sorted(map(str, file))) or "nothing"
        raise ConfigError(f"{path}: no RSL-RL 5.x checkpoint of PPO: lacks {', '.join(sorted(missing))}; holds {held}")
    optimizer = file["optimizer_state_dict"]
    env_state = (file.get("infos") or {}).get("env_state") or {}
    return Recorded(
        path,
        {model: dict(file[f"{model}_state_dict"]) for model in _MODELS},
        optimizer,
        int(file["iter"]) + 1 if optimizer["state"] else 0,
        env_state.get("common_step_counter"),
        tuple(sorted(file.keys() - _KEYS - {"infos"})),
    )


def to_algorithm_state(recorded: Recorded, fresh: State, config: RunConfig) -> State:
    """Return the state of PPO that goes on from `recorded`.

    Args:
        recorded: the file.
        fresh: `state_dict` of a new PPO of `config`; what the file does not hold stays as it is there.
        config: the run.

    Raises:
        ConfigError: models or optimiser are others than the config's; the settings that differ are named.
    """
    ours: Models = {
        model: {_our_name(name): tensor for name, tensor in recorded.models[model].items()} for model in _MODELS
    }
    if problems := [text for model in _MODELS for text in _misfits(model, recorded, ours[model], fresh[model], config)]:
        raise ConfigError("\n".join(f"{recorded.path}: {text}" for text in problems))
    (group,) = recorded.optimizer["param_groups"]
    moments = recorded.optimizer["state"]
    _require_same_optimizer(recorded.path, group, moments, config)
    place = {parameter: index for index, parameter in enumerate(_parameters(fresh))}
    state = {place[parameter]: moments[index] for index, parameter in enumerate(_parameters(ours)) if index in moments}
    rate = torch.tensor(float(group["lr"]))
    groups = [own | {"lr": rate} for own in fresh["optimizer"]["param_groups"]]
    return fresh | {
        "actor": fresh["actor"] | ours["actor"],
        "critic": fresh["critic"] | ours["critic"],
        "optimizer": fresh["optimizer"] | {"state": dict(sorted(state.items())), "param_groups": groups},
        "learning_rate": rate.clone(),
    }


def to_file(algorithm: State, *, iterations: int, control_steps: int, config: RunConfig) -> State:
    """Return what RSL-RL would have saved, of `algorithm`, a `state_dict` of PPO."""
    theirs = {model: _their_model(algorithm[model], config) for model in _MODELS}
    place = {parameter: index for index, parameter in enumerate(_parameters(algorithm))}
    kept = algorithm["optimizer"]["state"]
    order = [place[model, _our_name(name)] for model, name in _parameters(theirs)]
    parameters = [torch.zeros(()) for _ in order]
    optimizer = _OPTIMIZERS[config.algorithm.optimizer](parameters, float(algorithm["learning_rate"])).state_dict()
    return {
        "actor_state_dict": theirs["actor"],
        "critic_state_dict": theirs["critic"],
        "optimizer_state_dict": optimizer
        | {"state": {i: kept[index] for i, index in enumerate(order) if index in kept}},
        "iter": max(iterations - 1, 0),
        "infos": {"env_state": {"common_step_counter": control_steps}},
    }


def _their_model(ours: dict[str, Tensor], config: RunConfig) -> dict[str, Tensor]:
    """Return a model by their names and in their order: normaliser, deviation, perceptron, memory."""
    names = {ours: theirs for theirs, ours in _NORMALIZER.items()} | {_OUR_DEVIATION: _DEVIATION[config.actor.std_type]}
    renamed = {names.get(name, name): tensor for name, tensor in ours.items() if name not in _OURS_ALONE}
    order = (*_NORMALIZER, "distribution.", "mlp.", "rnn.")
    place = {name: next(index for index, start in enumerate(order) if name.startswith(start)) for name in renamed}
    return {name: renamed[name] for name in sorted(renamed, key=place.__getitem__)}


def _our_name(theirs: str) -> str:
    return _OUR_DEVIATION if theirs in _DEVIATION.values() else _NORMALIZER.get(theirs, theirs)


def _parameters(models: State) -> list[tuple[str, str]]:
    """Return (model, name) of what is optimised, in the order of the dictionaries."""
    return [(model, name) for model in _MODELS for name in models[model] if "normalizer." not in name]


def _misfits(
    model: str, recorded: Recorded, ours: dict[str, Tensor], fresh: dict[str, Tensor], config: RunConfig
) -> Iterator[str]:
    """Yield what in the config does not fit the file, one line each."""
    section = getattr(config, model)
    raw = recorded.models[model]
    normalized = any(name in _NORMALIZER for name in raw)
    if normalized != section.obs_normalization:
        yield f"{model}.obs_normalization is {str(normalized).lower()} there, not {str(not normalized).lower()}"
    for std_type, name in _DEVIATION.items():
        if model == "actor" and name in raw and config.actor.std_type != std_type:
            yield f"actor.std_type is {std_type} there, not {config.actor.std_type}"
    there, here = _sizes(ours), _sizes(fresh)
    if there[1:-1] != here[1:-1]:
        yield f"{model}.hidden_dims is {there[1:-1]} there, not {here[1:-1]}"
    for what, end in (("inputs", 0), ("outputs", -1)):
        if there[end] != here[end]:
            yield f"{model}: the perceptron has {there[end]} {what} there, {here[end]} for {config.task}"
    for name in [*ours, *(fresh.keys() - ours.keys() - _OURS_ALONE)]:
        if name.startswith(("normalizer.", "mlp.")) or (name == _OUR_DEVIATION and name in ours and name in fresh):
            continue  # said above
        shapes = [tuple(held[name].shape) if name in held else "missing" for held in (ours, fresh)]
        if shapes[0] != shapes[1]:
            yield f"{model}: {name} is {shapes[0]} there, {shapes[1]} in this config"


def _sizes(model: dict[str, Tensor]) -> list[int]:
    """Return the size of a perceptron's input and of each layer's output."""
    weights = [tensor for name, tensor in model.items() if name.startswith("mlp.") and name.endswith(".weight")]
    return [weights[0].shape[1], *(weight.shape[0] for weight in weights)] if weights else [0, 0]


def _require_same_optimizer(
    path: Path, group: dict[str, Any], moments: dict[int, dict[str, Any]], config: RunConfig
) -> None:
    name = config.algorithm.optimizer
    defaults = _OPTIMIZERS[name]([torch.zeros(())]).defaults
    other = [
        f"{key} is {group.get(key)} there, not {defaults[key]}"
        for key in ("betas", "eps", "weight_decay", "amsgrad")
        if group.get(key) != defaults[key]
    ]
    if any(not entry.keys() >= {"step", "exp_avg", "exp_avg_sq"} for entry in moments.values()):
        other.append("it remembers other things")
    if other:
        raise ConfigError(f"{path}: its optimiser is not algorithm.optimizer={name} as here: {', '.join(other)}")
