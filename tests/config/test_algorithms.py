"""The algorithm's name chooses the section; its problems are named as everywhere."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from hpclab.config.algorithms import DistillationSection, PPOSection
from hpclab.config.json_schema import run_json_schema
from hpclab.config.load import dump_config, load_config
from hpclab.errors import ConfigError

DISTILLATION = "task: cartpole-blind\nalgorithm: {name: distillation, teacher: runs/a}\n"


def load(tmp_path: Path, text: str, *overrides: str):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def test_ppo_is_meant_where_no_algorithm_is_named(tmp_path: Path) -> None:
    config = load(tmp_path, "task: cartpole-balance\nalgorithm: {gamma: 0.9}\n")
    assert isinstance(config.algorithm, PPOSection)
    assert config.algorithm.gamma == 0.9


def test_a_distillation_knows_its_teacher_wherever_it_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(tmp_path, DISTILLATION, "algorithm.loss=huber")
    assert isinstance(config.algorithm, DistillationSection)
    assert config.algorithm.teacher == str(tmp_path / "runs" / "a")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(tmp_path, dump_config(config)) == config
    jsonschema.Draft202012Validator(run_json_schema()).validate(config.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("algorithm: {name: pppo}", "algorithm.name: must be one of ppo, distillation, is the text 'pppo'"),
        ("algorithm: {name: distillation}", "algorithm.teacher: is required but not given"),
        ("algorithm: {name: distillation, teacher: a, gradient_lenght: 3}", "did you mean 'gradient_length'?"),
        ("algorithm: {gradient_length: 3}", "algorithm: unknown key 'gradient_length'"),
        ("algorithm: {rnd: {wieght: 3}}", "unknown key 'wieght'; did you mean 'weight'?"),
        ("algorithm: {rnd: {weight: high}}", "algorithm.rnd.weight: must be a number, is the text 'high'"),
        (
            "algorithm: {rnd: {schedule: linear, initial_step: 9, final_step: 9}}",
            "algorithm.rnd.final_step: 9 is not after",
        ),
        ("actor: {rnn: {type: rnn}}", "actor.rnn.type: must be one of lstm, gru, is the text 'rnn'"),
        ("actor: {rnn: {}}\nalgorithm: {symmetry: {}}", "algorithm.symmetry: does not work with recurrent networks"),
        ("actor: {rnn: {}}\nenv: {num_envs: 3}", "env.num_envs: 3 gives 3 environments to recurrent networks"),
        (
            "actor: {distribution: beta, action_range: [0, 1]}\nalgorithm: {symmetry: {}}",
            "actor.action_range: must be as far to both sides of 0",
        ),
        ("actor: {action_range: [1, -1]}", "actor.action_range: [1.0, -1.0] is empty"),
        ("actor: {image: {shape: [1, 2, 3], channels: [4]}}", "need an entry for each layer"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"task: cartpole-balance\n{text}\n")
    assert str(error.value).count("\n") == 0
    assert problem in str(error.value)
    assert "run.yaml:" in str(error.value)
