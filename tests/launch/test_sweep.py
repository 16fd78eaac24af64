from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch.sweep import read_members
from hpclab.launch.sweep_folder import SweepFolder
from hpclab.run_folder import RunFolder


def overrides(*arguments: str) -> list[tuple[str, ...]]:
    return [member.overrides for member in read_members(arguments)]


def test_every_combination_is_a_member_and_the_last_setting_varies_fastest() -> None:
    members = read_members(["algorithm.learning_rate=1e-4,3e-4", "seed=1..3"])
    assert [member.index for member in members] == list(range(6))
    assert members[1].overrides == ("algorithm.learning_rate=1e-4", "seed=2")
    assert members[1].values == {"algorithm.learning_rate": 1e-4, "seed": 2}
    assert members[3].overrides == ("algorithm.learning_rate=3e-4", "seed=1")


def test_values_are_split_outside_brackets_and_quotes_only() -> None:
    dims = "actor.hidden_dims=[64, 64],[128]"
    assert overrides(dims) == [("actor.hidden_dims=[64, 64]",), ("actor.hidden_dims=[128]",)]
    assert overrides("a='x,y',z") == [("a='x,y'",), ("a=z",)]
    assert overrides("a=0..0", "b=-1..1") == [("a=0", f"b={value}") for value in (-1, 0, 1)]
    assert overrides("a=0.1,0.2") == [("a=0.1",), ("a=0.2",)]


def test_a_setting_with_one_value_is_set_for_all() -> None:
    members = read_members(["seed=1,2", "slurm.time=90", "actor.hidden_dims=[64, 64]"])
    assert members[1].overrides == ("seed=2", "slurm.time=90", "actor.hidden_dims=[64, 64]")
    assert members[1].values == {"seed": 2}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("seed", "write key.sub=value,value or key.sub=1..5"),
        ("seed=1,,2", "has an empty value"),
        ("seed=", "has an empty value"),
        ("seed=1,1", "has a value twice"),
        ("seed=1", "no setting has several values"),
        ("seed=5..1", "a range goes upwards"),
        ("seed=0..99999", "a range goes upwards, to at most 10000 values"),
        ("slurm.time=1,2", "all members share slurm;"),
        ("run.name=a,b", r"all members share run\.name;"),
        ("launch.num_nodes=1,2", "all members share launch;"),
        ("run={name: a},{name: b}", r"all members share run\.root;"),
    ],
)
def test_what_cannot_be_swept(argument: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_members([argument])


def test_a_setting_given_twice_and_too_many_runs() -> None:
    with pytest.raises(ConfigError, match="seed is given twice"):
        read_members(["seed=1,2", "seed=3"])
    with pytest.raises(ConfigError, match="makes 1000000 runs, more than 10000"):
        read_members([f"{key}=1..1000" for key in "ab"])


def test_a_folder_holds_one_sweep(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "lr")
    folder.path.mkdir()
    assert folder.runs() == []
    folder.check([{"seed": 1}])
    folder.write({0: {"seed": 1}, 1: {"seed": 2}}, {0: "11_0"})
    assert [run.name for run in folder.runs()] == ["lr-000", "lr-001"]
    folder.write({1: {"seed": 2}}, {1: "12"})
    assert [member["job_id"] for member in json.loads(folder.record.read_text())["members"]] == ["11_0", "12"]
    folder.check([{"seed": 1}, {"seed": 2}])
    with pytest.raises(ConfigError, match="lr: holds another sweep; choose another"):
        folder.check([{"seed": 1}, {"seed": 3}])
    RunFolder(folder.path).manifest.touch()
    with pytest.raises(ConfigError, match="holds a run, so it cannot hold a sweep"):
        folder.check([{"seed": 1}, {"seed": 2}])
