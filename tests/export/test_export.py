"""`hpclab export`: files that compute what policies do, and what is written when they would not: nothing."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from hpclab.cli import main
from hpclab.config.load import dump_config
from hpclab.config.schema import RunConfig
from hpclab.envs.make import make_single_env
from hpclab.envs.spec import ObservationTerm
from hpclab.envs.terms import observations
from hpclab.export.metadata import describe_term, task_metadata
from hpclab.run_folder import RunFolder
from tests.checkpoint.test_store import flip
from tests.export.saved import NUM_ENVS, save
from tests.runners.runs import small_config
from tests.variants import VARIANTS


def hpclab(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["export", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


def actor_of(*variants: str, **more: Any) -> dict[str, Any]:
    """Return the actor's section with what several variants say of it."""
    section: dict[str, Any] = {}
    for variant in variants:
        section |= VARIANTS[variant]["actor"]
    return {"actor": section | more}


def image_and_beta(folder: Path) -> RunConfig:
    return small_config(**actor_of("beta", image=VARIANTS["image"]["actor"]["image"] | {"norm": "batch"}))


def lstm_and_deviations(folder: Path) -> RunConfig:
    return small_config(**actor_of("state_dependent_gaussian", "lstm"))


def student_with_gru(folder: Path) -> RunConfig:
    """A student that sees the critic's observations, whose teacher's run is no longer there when it is exported."""
    teacher, _, _ = save(folder / "teacher", small_config())
    learning = {"name": "distillation", "teacher": str(teacher.path), "student_group": "critic", "gradient_length": 1}
    config = small_config(algorithm=learning, **actor_of("gru"))
    return config.model_copy(update={"task": "cartpole-blind"})


# Every network and distribution once: an export costs seconds.
@pytest.mark.parametrize(
    ("make_config", "group", "inputs", "outputs"),
    [
        (image_and_beta, "actor", ["obs"], ["actions"]),
        (lstm_and_deviations, "actor", ["obs", "h_in", "c_in"], ["actions", "h_out", "c_out"]),
        (student_with_gru, "critic", ["obs", "h_in"], ["actions", "h_out"]),
    ],
)
def test_a_file_computes_what_the_policy_does(
    make_config: Callable[[Path], RunConfig],
    group: str,
    inputs: list[str],
    outputs: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, algorithm, dims = save(tmp_path / "run", make_config(tmp_path))
    shutil.rmtree(tmp_path / "teacher", ignore_errors=True)
    assert hpclab(run.path) == 0
    file = run.path / "export" / "policy.onnx"
    printed = capsys.readouterr().out
    assert printed.startswith(f"{file}: the policy of iter-000007, ")
    assert f"obs (N, {dims[group]})" in printed

    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert b"site-packages" not in file.read_bytes()
    session = onnxruntime.InferenceSession(file)
    assert [given.name for given in session.get_inputs()] == inputs
    assert [given.name for given in session.get_outputs()] == outputs
    shapes = {given.name: given.shape for given in session.get_inputs()}
    assert shapes.pop("obs") == ["batch", dims[group]]
    start = {name: np.zeros((layers, NUM_ENVS, units), np.float32) for name, (layers, _, units) in shapes.items()}
    state = start
    algorithm.start_rollout()
    for _ in range(3):
        seen = {name: torch.randn(NUM_ENVS, dim) for name, dim in dims.items()}
        expected = algorithm.act_inference(seen)
        algorithm.act(seen)  # the memory takes the step
        given = {"obs": seen[group].numpy()}
        actions, *after = session.run(None, given | state)
        torch.testing.assert_close(torch.from_numpy(actions), expected, rtol=1e-5, atol=1e-5)
        forgetful = session.run(None, given | start)[0]
        state = dict(zip(start, after, strict=True))
    assert np.array_equal(actions, forgetful) == (not start)

    about = session.get_modelmeta().custom_metadata_map
    assert (about["run"], about["iteration"]) == ("run", "7")
    assert sum(term["size"] for term in json.loads(about["observations"])) == dims[group]


def test_what_a_robot_needs_to_know_is_in_the_file() -> None:
    env = make_single_env(small_config().model_copy(update={"task": "g1-velocity-flat"}))
    about = task_metadata(env, "actor")
    lists = {key: value.split(",") for key, value in about.items()}
    assert about["task"] == "g1-velocity-flat"
    assert float(about["control_period_s"]) == 0.02
    assert about["command_names"] == "twist"
    assert lists["observation_names"][-3:] == ["joint_vel", "actions", "command"]
    joint_vel = json.loads(about["observations"])[-3]
    assert joint_vel == {
        "name": "joint_vel",
        "size": 29,
        "clip": None,
        "scale": 1.0,
        "history": 1,
        "meaning": "Joint velocities [rad/s].",
        "params": {},
    }
    assert lists["joint_names"] == lists["action_names"] == list(env.joints.names)
    knee = lists["joint_names"].index("left_knee_joint")
    assert about["action_type"] == "position"
    assert lists["default_joint_pos"][knee] == lists["action_offset"][knee] == "0.669"
    servo = env.sim.model.actuator("left_knee_joint")
    assert float(lists["joint_stiffness"][knee]) == pytest.approx(servo.gainprm[0], rel=1e-6)
    assert float(lists["joint_damping"][knee]) == pytest.approx(-servo.biasprm[2], rel=1e-6)
    assert float(lists["action_scale"][knee]) == pytest.approx(0.25 * servo.forcerange[1] / servo.gainprm[0], rel=1e-6)
    env.close()


def test_efforts_are_told_as_the_simulation_applies_them() -> None:
    env = make_single_env(small_config())
    about = task_metadata(env, "actor")
    low, high = map(float, about["action_clip"].split(","))
    env.reset()
    for action in (0.3, -2.0):
        env.step(torch.tensor([[action]]))
        force = float(about["action_offset"]) + float(about["action_scale"]) * min(max(action, low), high)
        assert force == pytest.approx(float(env.sim.ctrl[0, 0]) * float(env.sim.model.actuator("slide").gear[0]))
    assert (about["action_type"], about["action_names"], about["joint_names"]) == ("effort", "slide", "slider,hinge")
    env.close()


def test_a_term_is_told_with_its_settings() -> None:
    term = ObservationTerm(observations.sensor, {"name": "imu"}, noise=0.1, clip=(-1.0, 1.0), scale=0.5, history=3)
    assert describe_term("spin", term, 9) == {
        "name": "spin",
        "size": 9,
        "clip": (-1.0, 1.0),
        "scale": 0.5,
        "history": 3,
        "meaning": "The values of one sensor, in its unit.",
        "params": {"name": "imu"},
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return save(tmp_path_factory.mktemp("plain") / "run", small_config())[0]


@pytest.mark.parametrize(("weight", "difference"), [(0.0, "by [1-9]"), (float("nan"), "by nan")], ids=["other", "nan"])
def test_a_file_that_computes_something_else_is_not_written(
    weight: float,
    difference: str,
    plain: RunFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("obs", 5), ("actions", 1))
    ]
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [5, 1], [weight] * 5)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "weights"], ["actions"])], "wrong", values[:1], values[1:], [weights]
    )
    wrong = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    monkeypatch.setattr("hpclab.export.onnx.to_onnx", lambda policy, metadata: wrong)
    assert hpclab(plain.path) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{plain.export / 'policy.onnx'}: not written: ")
    assert re.search(difference, line)
    assert not plain.export.exists()


def nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    shutil.rmtree(run.path)
    return [run.path]


def no_checkpoint(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    shutil.rmtree(run.checkpoints)
    return [run.path]


def no_run(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    run.config.unlink()
    return [run.checkpoints / "iter-000007"]


def damaged(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    flip(run.checkpoints / "iter-000007" / "shared.pt")
    return [run.path]


def other_network(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    run.config.write_text(dump_config(small_config(actor={"hidden_dims": [17]})))
    return [run.path]


def folder_to_write(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return [run.path, "--output", run.path]


def pipe_to_write(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    os.mkfifo(run.path / "pipe")
    return [run.path, "--output", run.path / "pipe"]


def no_library(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    return [run.checkpoints / "latest"]


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (nothing, 2, "there is no checkpoint"),
        (no_checkpoint, 2, "there is no checkpoint"),
        (no_run, 2, "is in no run's folder"),
        (damaged, 5, "shared.pt has another checksum"),
        (other_network, 2, "the saved policy is not one of 5 observations and 1 actions"),
        (folder_to_write, 2, "is a folder; name a file in it"),
        (pipe_to_write, 2, "is no regular file; name another"),
        (no_library, 2, "pip install 'hpclab[export]'"),
    ],
)
def test_a_wrong_request_is_one_line_and_writes_nothing(
    spoil: Callable[[RunFolder, pytest.MonkeyPatch], list[Any]],
    code: int,
    message: str,
    plain: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(plain.path, run.path, symlinks=True)
    arguments = spoil(run, monkeypatch)
    before = sorted(tmp_path.rglob("*"))
    assert hpclab(*arguments) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert message in line
    assert captured.out == ""
    assert sorted(tmp_path.rglob("*")) == before
