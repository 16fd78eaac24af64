from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.config import load
from hpclab.config.load import load_profile
from hpclab.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the profiles `site` and `other`, its folder `a/b` being the working one; no source tree."""
    profiles = tmp_path / "slurm" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "site.yaml").write_text("partition: gpu\ntime: 1-12:00:00\nextra: {comment: no}\n")
    (profiles / "other.yaml").write_text("# all defaults\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.setattr(load, "_SOURCE_TREE", tmp_path / "elsewhere")
    return tmp_path


def test_a_profile_is_found_in_the_project_of_the_working_folder(project: Path) -> None:
    assert load_profile("site") == {"partition": "gpu", "time": 2160, "extra": {"comment": "no"}}
    assert load_profile("other") == {}


def test_a_profile_is_found_beside_the_package(project: Path) -> None:
    beside = project / "elsewhere" / "slurm" / "profiles"
    beside.mkdir(parents=True)
    (beside / "installed.yaml").write_text("account: a\n")
    assert load_profile("installed") == {"account": "a"}


def test_a_profile_is_found_by_path(project: Path) -> None:
    Path("mine.yml").write_text("qos: q\n")
    assert load_profile("mine.yml") == {"qos": "q"}
    with pytest.raises(ConfigError, match=r"^my\.yml: no such file; did you mean 'mine\.yml'\?$"):
        load_profile("my.yml")


def test_an_unknown_profile_lists_those_there(project: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile("sites")
    where = project / "slurm" / "profiles"
    assert str(caught.value) == f"--profile sites: no sites.yaml in {where}; profiles there: other, site"


def test_no_profiles_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load, "_SOURCE_TREE", tmp_path)
    with pytest.raises(ConfigError, match=r"^--profile site: there is no folder slurm/profiles at or above "):
        load_profile("site")


def test_wrong_keys_are_named_with_their_line(project: Path) -> None:
    Path("bad.yaml").write_text("partition: gpu\nzzz: 1\ntime: 0\n")
    with pytest.raises(ConfigError) as caught:
        load_profile("bad.yaml")
    first, second = str(caught.value).split("\n")
    assert first.startswith("bad.yaml:2: unknown key 'zzz'; valid keys: account, agents, command_prefix, constraint, ")
    assert second == "bad.yaml:3: time: a walltime must be longer than zero (is 0)"


def test_a_profile_that_is_no_section(project: Path) -> None:
    Path("bad.yaml").write_text("- partition\n")
    with pytest.raises(ConfigError, match=r"^bad\.yaml: must be a section of keys, is a list$"):
        load_profile("bad.yaml")


def test_shipped_profiles() -> None:
    profiles = sorted((Path(__file__).parents[2] / "slurm" / "profiles").glob("*.yaml"))
    assert "default" in [path.stem for path in profiles]
    for path in profiles:
        load_profile(str(path))
