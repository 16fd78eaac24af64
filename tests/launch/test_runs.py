from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from hpclab.config.load import load_config
from hpclab.errors import ConfigError
from hpclab.launch import jobs, runs
from hpclab.launch.manifest import read_manifest
from hpclab.run_folder import RunFolder


def make(path: Path, *overrides: str) -> tuple[str, ...]:
    config = load_config(path, overrides)
    with runs.opened(runs.run_folder(config, path), config, {"command": "train"}) as opened:
        return opened.notes


def test_a_run_is_named_after_its_config_file(tmp_path: Path) -> None:
    path = tmp_path / "walk.yaml"
    path.write_text(f"task: cartpole-balance\nrun: {{root: {tmp_path}/runs}}\n")
    assert runs.run_folder(load_config(path), path).path == tmp_path / "runs" / "walk"


@pytest.mark.parametrize("name", ["a\nb", "caf\udce9"])
def test_a_config_file_whose_name_cannot_be_a_runs_writes_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"task: cartpole-balance\nrun: {{root: {tmp_path}/runs}}\n")
    with pytest.raises(ConfigError, match=r"a run's path must be one line of text; choose another run\.name"):
        make(path)
    assert not (tmp_path / "runs").exists()
    make(path, "run.name=caf\xe9\u200d\xa0b")


def test_a_home_folder_that_does_not_exist_is_named(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"^run\.root=~nobody-here/runs: there is no such home folder"):
        runs.run_folder(load_config(tiny, ["run.root=~nobody-here/runs"]), tiny)


def test_a_new_run_has_its_config_and_manifest(tiny: Path, tmp_path: Path) -> None:
    assert make(tiny) == ()
    run = RunFolder(tmp_path / "runs" / "tiny")
    assert sorted(os.listdir(run.path)) == ["config.yaml", "run.json"]  # noqa: PTH208
    assert load_config(run.config) == load_config(tiny)
    manifest = read_manifest(run)
    assert manifest["versions"]["torchrunx"] == "0.4.0"
    assert manifest["launch"] == {"command": "train"}


def test_going_on_keeps_the_identity_and_names_changed_settings(tiny: Path, tmp_path: Path) -> None:
    make(tiny)
    run = RunFolder(tmp_path / "runs" / "tiny")
    before = read_manifest(run)
    notes = make(tiny, "run.max_iterations=9", "algorithm.gamma=0.9")
    assert notes[0].endswith("exists: going on with that run")
    assert "setting changed for this run: run.max_iterations: 4 -> 9" in notes
    assert "setting changed for this run: algorithm.gamma: 0.99 -> 0.9" in notes
    assert len(notes) == 3
    assert load_config(run.config).run.max_iterations == 9
    after = read_manifest(run)
    assert (after["id"], after["created"]) == (before["id"], before["created"])


def test_a_run_with_checkpoints_keeps_its_task_and_networks(tiny: Path, tmp_path: Path) -> None:
    make(tiny)
    make(tiny, "actor.hidden_dims=[8]")  # nothing is saved yet: it may change
    (tmp_path / "runs" / "tiny" / "checkpoints" / "iter-000001").mkdir(parents=True)
    before = (tmp_path / "runs" / "tiny" / "config.yaml").read_text()
    with pytest.raises(ConfigError, match=r"holds a run with actor\.hidden_dims=.*choose another run\.name"):
        make(tiny)
    assert (tmp_path / "runs" / "tiny" / "config.yaml").read_text() == before


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("optimizer=adam", "optimizer=sgd", "optimizer=adam, not sgd"),
        ("optimizer=adam", "optimizer=adamw", None),
        ("rnd=null", "rnd.weight=0.5", "rnd=None, not "),
        ("rnd.weight=1.0", "rnd.weight=0.5", None),
        ("rnd.weight=1.0", "rnd.num_outputs=3", "rnd.num_outputs=16, not 3"),
        ("rnd.weight=1.0", "rnd=null", None),
    ],
)
def test_a_run_with_checkpoints_keeps_what_they_hold(
    before: str, after: str, refused: str | None, tiny: Path, tmp_path: Path
) -> None:
    make(tiny, f"algorithm.{before}")
    (tmp_path / "runs" / "tiny" / "checkpoints" / "iter-000001").mkdir(parents=True)
    with (
        nullcontext()
        if refused is None
        else pytest.raises(ConfigError, match=rf"holds a run with algorithm\.{refused}")
    ):
        make(tiny, f"algorithm.{after}")


def test_a_live_run_is_refused_and_untouched(tiny: Path, tmp_path: Path) -> None:
    config = load_config(tiny)
    run = runs.run_folder(config, tiny)
    with runs.opened(run, config, {"command": "train"}):
        before = {path: path.read_bytes() for path in run.path.iterdir()}
        with pytest.raises(ConfigError, match="in use by process"):
            make(tiny, "run.max_iterations=9")
        assert {path: path.read_bytes() for path in run.path.iterdir()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_root_that_cannot_be_written_is_refused(tiny: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(ConfigError, match="not writable"):
        make(tiny)
    tmp_path.chmod(0o755)


def test_a_root_that_is_a_file_is_refused(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match="runs: is a file"):
        make(tiny)


def test_a_folder_that_cannot_be_made_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be created|not writable"):
        make(tiny, "run.root=/proc/hpclab")


def test_opening_clears_an_earlier_cancel_and_keeps_on_record_what_it_ended(tiny: Path, tmp_path: Path) -> None:
    make(tiny)
    run = RunFolder(tmp_path / "runs" / "tiny")
    jobs.begin(run, "slurm", hosts=["n1"], num_workers=1, job_id="11")  # and was killed with its job
    run.cancel_request.touch()
    make(tiny)
    assert not run.cancel_request.exists()
    assert [one.cause for one in jobs.read(run)] == ["cancelled"]


def test_a_manifest_that_is_missing_or_broken_is_named(run: RunFolder) -> None:
    run.config.touch()
    for path in (run.path, run.config):
        with pytest.raises(ConfigError, match=rf"^{path}: holds no run \(no run\.json in it\); name a run's folder"):
            read_manifest(RunFolder(path))
    run.manifest.write_text(json.dumps([1]))
    with pytest.raises(ConfigError, match="one JSON object"):
        read_manifest(run)
