"""PPO reproduces recorded runs of RSL-RL 5.4.2, and the check that says so notices when it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tools.check_oracle import check, main

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
_UPDATES = ("kl", "actor_grad_norm", "critic_grad_norm")
ONE_RANK = {
    "ppo_w1.npz": ("collectives",),
    "ppo_hetero_w1.npz": _UPDATES,
    "ppo_beta_w1.npz": _UPDATES,
    "ppo_gru_w1.npz": (*_UPDATES, "memory/critic/0", "memory after the rollout/actor/0"),
    "ppo_symmetry_w1.npz": (*_UPDATES, "symmetry_loss"),
    "ppo_lstm_w1.npz": (*_UPDATES, "memory/critic/1", "memory after the rollout/actor/1"),
}
"""Recordings of one rank, and what each holds besides what all do."""


def altered(tmp_path: Path, name: str, **changes) -> Path:
    """A copy of a recording with some arrays replaced by functions of themselves."""
    with np.load(DATA / name) as file:
        arrays = {key: file[key] for key in file.files}
    for key, change in changes.items():
        arrays[key] = change(arrays[key])
    path = tmp_path / name
    np.savez(path, **arrays)
    return path


def assert_reproduced(errors, *more):
    assert [error for error in errors.values() if not error.ok] == []
    keys = ("returns", "advantages", "values", "actions_log_prob", "dist0", "learning_rate", "value_loss", "entropy")
    assert {*keys, *more} <= errors.keys()
    parameters = [key for key in errors if key.startswith(("actor/mlp", "critic/mlp"))]
    buffers = [key for key in errors if key.startswith(("actor/normalizer", "critic/normalizer"))]
    assert (len(parameters), len(buffers)) == (12, 8)
    assert max(error.worst for error in errors.values()) < 1e-5


@pytest.mark.parametrize(("name", "more"), ONE_RANK.items(), ids=ONE_RANK)
def test_one_rank_is_reproduced(name, more):
    assert_reproduced(check(DATA / name), *more)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("name", "more"),
    [("ppo_w2.npz", ()), ("ppo_rnd_w2.npz", ("rnd_loss", "rnd_predictor/2.weight", "rnd_target/2.bias"))],
)
def test_two_ranks_are_reproduced_with_the_same_collectives(name, more):
    assert_reproduced(check(DATA / name), "collectives", *more)
    with np.load(DATA / name) as file:
        assert file["rank1/collectives_per_iteration"].tolist() == [40, 20]


@pytest.mark.parametrize(
    ("key", "failing"),
    [
        ("rank0/it2/actor/mlp.2.weight", "actor/mlp.2.weight"),
        ("rank0/it1/critic/obs_normalizer._var", "critic/normalizer.var"),
        ("rank0/it1/returns", "returns"),
        ("rank0/it2/lr", "learning_rate"),
    ],
)
def test_a_changed_number_is_noticed(tmp_path, capsys, key, failing):
    path = altered(tmp_path, "ppo_w1.npz", **{key: lambda values: values * 1.001})
    assert main([str(path)]) == 1
    failed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith("FAILED")]
    assert failed == [failing]


def test_other_mini_batches_are_noticed(tmp_path):
    path = altered(tmp_path, "ppo_w1.npz", **{"rank0/it0/perm": lambda values: values[::-1]})
    assert main([str(path)]) == 1


@pytest.mark.distributed
def test_every_rank_is_checked(tmp_path):
    path = altered(tmp_path, "ppo_w2.npz", **{"rank1/it2/advantages": lambda values: values + 0.01})
    assert main([str(path)]) == 1


def with_meta(tmp_path: Path, **values) -> Path:
    def change(meta):
        return np.array(json.dumps(json.loads(str(meta)) | values))

    return altered(tmp_path, "ppo_w1.npz", **{"rank0/meta": change})


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        ({"algorithm": "amp"}, "recordings of 'amp' are not replayed"),
        ({"optimizer": "lion"}, "recordings with the lion optimiser are not replayed"),
        ({"distribution": {"name": "gamma"}}, "recordings with a gamma policy are not replayed"),
    ],
)
def test_formats_of_later_work_are_one_line_and_exit_code_2(tmp_path, capsys, meta, problem):
    path = with_meta(tmp_path, **meta)
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"{path}: ")
    assert problem in error


def test_what_is_no_recording_is_one_line_and_exit_code_2(tmp_path, capsys):
    broken = tmp_path / "broken.npz"
    broken.write_bytes((DATA / "ppo_w1.npz").read_bytes()[:5000])
    text = tmp_path / "text.npz"
    text.write_text("{}")
    bare = tmp_path / "bare.npz"
    np.savez(bare, numbers=np.zeros(3))
    missing = tmp_path / "missing.npz"
    assert main([str(path) for path in (broken, text, bare, missing)]) == 2
    assert capsys.readouterr().err.count("\n") == 4


def test_as_a_script_from_anywhere(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "check_oracle.py")]
    good = subprocess.run([*command, DATA / "ppo_w1.npz"], cwd=tmp_path, capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    assert "advantages" in good.stdout
    bad = subprocess.run([*command, "nothing.npz"], cwd=tmp_path, capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
