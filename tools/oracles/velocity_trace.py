"""Walks a recorded trace of a velocity task on flat ground: every step starts from the recorded state, with history.

Noise, pushes, headings and curriculum are off, as in the recording; its startup randomisation is taken over.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hpclab.envs.manager import ManagerEnv
from hpclab.envs.robots import g1, go1
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import TaskSpec
from hpclab.envs.tasks import load_task
from hpclab.envs.vec_env import Observations
from tools.oracles.report import Error, UnsupportedFormatError

TOLERANCE = 1e-3
"""Absolute, in the unit of the term, for 95 % of its values."""
FORCE_TOLERANCE = 0.05
"""Relative to the force of the foot, for 95 % of the forces."""

Pairs = dict[str, list[tuple[NDArray[np.float64], NDArray[np.float64]]]]
_FRICTIONS = ("foot_friction", "foot_friction_spin", "foot_friction_roll")


@dataclasses.dataclass(frozen=True)
class _Robot:
    """Where a robot's startup randomisation belongs."""

    foot_geoms: tuple[str, ...]
    com_body: str
    com_key: str


TASKS = {
    "g1-velocity-flat": _Robot(g1.FOOT_GEOMS, g1.TORSO_BODY, "torso_com"),
    "go1-velocity-flat": _Robot(go1.FOOT_GEOMS, go1.ROOT_BODY, "trunk_com"),
}


def check(path: Path) -> dict[str, Error]:
    """Walk the trace and return the error of every reward and observation term.

    Raises:
        UnsupportedFormatError: it is a trace of a task that this version does not have.
    """
    with np.load(path) as file:
        trace = {name: file[name] for name in file.files}
    task = json.loads(str(trace["meta"]))["task"]
    if task not in TASKS:
        raise UnsupportedFormatError(f"traces of '{task}' are not replayed by this version")
    pairs = walk(trace, build(task, trace))
    return {key: _exact(key, values) if key in _EXACT else _close(key, values) for key, values in pairs.items()}


def undisturbed(task: TaskSpec) -> TaskSpec:
    """Return the task without noise, pushes, startup randomisation, curriculum and random episode lengths."""
    return dataclasses.replace(
        task,
        observations={
            group: {name: dataclasses.replace(term, noise=0.0) for name, term in terms.items()}
            for group, terms in task.observations.items()
        },
        events={name: term for name, term in task.events.items() if term.mode == "reset"},
        curriculum={},
        randomize_initial_episode_length=False,
    )


def build(task: str, trace: Mapping[str, NDArray[np.generic]]) -> ManagerEnv:
    """Build the trace's environments with the startup randomisation that it recorded."""
    spec = undisturbed(load_task(task))
    num_envs = trace["qpos"].shape[1]
    sim = make_sim(spec.model(), num_envs, device=torch.device("cpu"), num_substeps=spec.decimation)
    env = ManagerEnv(task, spec, sim)
    model = sim.model
    robot = TASKS[task]
    friction = sim.model_field("geom_friction")
    geoms = [model.geom(name).id for name in robot.foot_geoms]
    for column, key in enumerate(key for key in _FRICTIONS if key in trace):
        friction[:, geoms, column] = _tensor(trace[key])[:, None]
    sim.model_field("body_ipos")[:, model.body(robot.com_body).id] = _tensor(trace[robot.com_key])
    sim.commit_model()
    env.joints.encoder_bias.copy_(_tensor(trace["encoder_bias"]))
    return env


def walk(trace: Mapping[str, NDArray[np.generic]], env: ManagerEnv) -> Pairs:
    """Step through the trace and return pairs of (replayed, recorded) arrays by key."""
    everyone = torch.ones(env.num_envs, dtype=torch.bool)
    names = [str(name) for name in trace["reward_term_names"]]
    pairs: Pairs = {}

    def compare(key: str, replayed: Tensor, recorded: NDArray[np.generic], rows: Tensor = everyone) -> None:
        keep = rows.numpy()
        pair = (replayed.numpy()[keep].astype(np.float64), recorded[keep].astype(np.float64))
        pairs.setdefault(key, []).append(pair)

    def compare_observations(observations: Observations, index: int, rows: Tensor) -> None:
        for group, slices in env.observations.slices.items():
            for name, columns in slices.items():
                recorded = trace[f"{group}_obs"][index][:, columns]
                compare(f"{group}/{name}", observations[group][:, columns], recorded, rows)
        compare("foot_height", env.trackers["foot_heights"].height, trace["foot_height"][index], rows)
        compare("foot_air_time", env.trackers["feet"].air_time, trace["foot_air_time"][index], rows)
        compare("foot_force", env.trackers["feet"].force, trace["foot_force"][index], rows)

    def put(index: int) -> Observations:
        env.sim.write_state(_tensor(trace["qpos"][index]), _tensor(trace["qvel"][index]), everyone)
        env.commands["twist"].hold(_tensor(trace["command"][index]))
        return env.refresh(~everyone)

    env.reset()
    compare_observations(put(0), 0, everyone)
    for k, action in enumerate(trace["action"]):
        step = env.step(_tensor(action))
        replayed = dict(zip(env.rewards.names, (env.rewards.values / env.step_dt).unbind(dim=1), strict=True))
        for column, name in enumerate(names):
            value = replayed.get(name, torch.zeros(env.num_envs))
            compare(f"reward/{name}", value, trace["reward_terms"][k][:, column])
        compare("reward", step.rewards, trace["reward"][k])
        compare("terminated", step.dones & ~step.time_outs, trace["terminated"][k])
        compare("time_out", step.time_outs, trace["time_out"][k])
        compare_observations(step.observations, k + 1, ~step.dones)
        # An ended episode starts from a random state here and there: compare it from the recorded one.
        compare_observations(put(k + 1), k + 1, step.dones)
    env.close()
    return pairs


_EXACT = ("terminated", "time_out")


def _tensor(values: NDArray[np.generic]) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32)


def _exact(key: str, pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Error:
    wrong = float(sum((a != b).sum() for a, b in pairs))
    return Error(key, wrong, wrong, 0.0, wrong == 0.0)


def _close(key: str, pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Error:
    replayed, recorded = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    errors = np.abs(replayed - recorded)
    tolerance = TOLERANCE
    if key == "foot_force":
        newton = np.linalg.norm(recorded, axis=-1)
        errors = np.linalg.norm(errors, axis=-1)[newton > 0] / newton[newton > 0]
        tolerance = FORCE_TOLERANCE
    errors = np.where(np.isfinite(errors), errors, np.inf)
    p95 = float(np.quantile(errors, 0.95, method="higher"))
    return Error(key, float(errors.max()), p95, tolerance, p95 <= tolerance)
