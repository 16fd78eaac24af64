"""Replays recorded distillation iterations through the engine, one process per recorded rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpclab.algorithms.distillation import Distillation
from hpclab.config.algorithms import DistillationSection
from hpclab.config.models import ActorSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import EnvironmentSpec, Step
from hpclab.models.actor_critic import Actor
from tools.oracles.names import our_name
from tools.oracles.ranks import Arrays, replay
from tools.oracles.report import Error, relative_error, worst_by_key

TOLERANCE = 1e-4


def check(path: Path) -> dict[str, Error]:
    """Replay every rank of the file and return the worst error by key."""
    return worst_by_key(replay(path, _replay))


def _network(settings: dict[str, Any]) -> ActorSection:
    return ActorSection.model_validate(settings | {"hidden_dims": tuple(settings["hidden_dims"])})


def _config(meta: dict[str, Any]) -> RunConfig:
    algorithm = DistillationSection(
        name="distillation",
        teacher="recorded",
        student_group="student",
        teacher_group="teacher",
        num_steps_per_env=meta["T"],
        num_learning_epochs=meta["num_learning_epochs"],
        gradient_length=meta["gradient_length"],
        learning_rate=meta["learning_rate"],
        max_grad_norm=meta["max_grad_norm"],
        loss=meta["loss_type"],
    )
    return RunConfig(
        task="recording",
        env=EnvSection(num_envs=meta["N"]),
        algorithm=algorithm,
        actor=_network(meta["student"]),
        sync=SyncSection(preset="mjlab"),
    )


def _replay(meta: dict[str, Any], arrays: Arrays, collectives: Collectives) -> list[Error]:
    """Walk the recording of this rank: recorded observations in, errors out. The student's actions change nothing."""
    root = f"rank{collectives.rank}"
    observed = {name: torch.from_numpy(arrays[f"{root}/data/{name}_obs"]) for name in ("student", "teacher")}
    dones = torch.from_numpy(arrays[f"{root}/data/done"])
    num_actions = arrays[f"{root}/it0/privileged_actions"].shape[-1]
    spec = EnvironmentSpec(
        observation_dims={name: values.shape[-1] for name, values in observed.items()},
        num_actions=num_actions,
        num_envs=meta["N"],
        device=torch.device("cpu"),
    )
    teacher = Actor(_network(meta["teacher"]), observed["teacher"].shape[-1], num_actions)
    distillation = Distillation(_config(meta), spec, collectives, teacher=teacher)
    parts = {"student": distillation.student, "teacher": distillation.teacher}
    ours = {f"{part}/{name}": value for part, model in parts.items() for name, value in model.state_dict().items()}

    def recorded(prefix: str) -> Arrays:
        found = {}
        for part in parts:
            start = f"{prefix}/{part}/"
            found |= {f"{part}/{our_name(k.removeprefix(start))}": v for k, v in arrays.items() if k.startswith(start)}
        return found

    for name, value in recorded(f"{root}/init").items():
        ours[name].copy_(torch.from_numpy(value))
    distillation.broadcast_parameters()
    errors, found_losses, expected_losses = [], [], []
    for iteration in range(meta["iterations"]):
        at = f"{root}/it{iteration}"
        distillation.start_rollout()
        for t in range(iteration * meta["T"], (iteration + 1) * meta["T"]):
            distillation.act({name: values[t] for name, values in observed.items()})
            after = {name: values[t + 1] for name, values in observed.items()}
            distillation.process_step(Step(after, torch.zeros(meta["N"]), dones[t + 1], torch.zeros_like(dones[t])))
        distillation.finish_rollout(after)
        expected = arrays[f"{at}/privileged_actions"]
        errors.append(relative_error("labels", distillation.labels.numpy(), expected, TOLERANCE))
        before = collectives.counts["all_reduce"]
        losses = distillation.update()
        found_losses.append(float(losses["behavior_loss"]))
        expected_losses.append(float(arrays[f"{at}/loss"]))
        for name, value in recorded(at).items():
            errors.append(relative_error(name, ours[name].numpy(), value, TOLERANCE))
        calls = collectives.counts["all_reduce"] - before
        errors.append(relative_error("collectives", calls, arrays[f"{root}/all_reduce_per_iteration"], 0.0))
    errors.append(relative_error("behavior_loss", found_losses, expected_losses, TOLERANCE))
    return errors
