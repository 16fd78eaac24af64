"""The velocity tasks on flat ground against recorded traces of the reference system."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hpclab.envs import tasks
from hpclab.envs.spec import TaskSpec
from tools.oracles import velocity_trace
from tools.oracles.report import UnsupportedFormatError

DATA = Path(__file__).parents[1] / "data"
TRACES = {"g1-velocity-flat": DATA / "g1_velocity_flat_a.npz", "go1-velocity-flat": DATA / "go1_velocity_flat_a.npz"}


@pytest.mark.parametrize("task", TRACES)
def test_every_term_of_the_trace_is_reproduced(task: str) -> None:
    errors = velocity_trace.check(TRACES[task])
    assert [key for key, error in errors.items() if not error.ok] == []
    with np.load(TRACES[task]) as trace:
        names = [str(name) for name in trace["reward_term_names"]]
    spec = tasks.load_task(task)
    assert [name for name in spec.rewards if name in names] == names
    assert {f"reward/{name}" for name in names} <= errors.keys()
    assert {f"{group}/{name}" for group, terms in spec.observations.items() for name in terms} <= errors.keys()
    assert errors["terminated"].worst == 0
    # Physics differs by versions, so single values may; nearly all of them agree far below the tolerance.
    assert max(error.p95 for key, error in errors.items() if "force" not in key) < 1e-4
    assert errors["foot_force"].p95 < 1e-3


def test_a_wrong_term_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(name: str) -> TaskSpec:
        spec = tasks.load_task(name)
        slip = dataclasses.replace(spec.rewards["foot_slip"], weight=-0.2)
        return dataclasses.replace(spec, rewards={**spec.rewards, "foot_slip": slip})

    monkeypatch.setattr(velocity_trace, "load_task", changed)
    errors = velocity_trace.check(TRACES["g1-velocity-flat"])
    assert [key for key, error in errors.items() if not error.ok] == ["reward/foot_slip"]


def test_traces_of_unknown_tasks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    np.savez(path, meta=json.dumps({"algorithm": "trace", "task": "go2-velocity-flat"}))
    with pytest.raises(UnsupportedFormatError, match="go2-velocity-flat"):
        velocity_trace.check(path)
