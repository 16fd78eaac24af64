from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from hpclab.config.json_schema import run_json_schema
from hpclab.config.yaml_file import parse_yaml

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = run_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_fit(validator: jsonschema.Draft202012Validator, path: Path) -> None:
    validator.validate(parse_yaml(path.read_text()).values)


@pytest.mark.parametrize(
    "text", ["slurm: {time: 12:00:00, memory: 64G}", "actor: {hidden_dims: [8]}", "env: {num_envs: 8}"]
)
def test_what_the_loader_reads_fits(validator: jsonschema.Draft202012Validator, text: str) -> None:
    validator.validate(parse_yaml(f"task: cartpole-balance\n{text}").values)


@pytest.mark.parametrize(
    "text",
    [
        "seed: 1",
        "task: no-such-task",
        "task: cartpole-balance\nnum_envs: 3",
        "task: cartpole-balance\nseed: -1",
        "task: cartpole-balance\nenv: {num_envs: '8'}",
        "task: cartpole-balance\nsync: {preset: mine}",
    ],
)
def test_what_the_loader_refuses_does_not_fit(validator: jsonschema.Draft202012Validator, text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(parse_yaml(text).values)


def test_every_setting_has_a_description() -> None:
    schema = run_json_schema()
    bare = [
        f"{name}.{key}"
        for name, section in schema["$defs"].items()
        for key, setting in section["properties"].items()
        if "description" not in setting
    ]
    assert not bare
