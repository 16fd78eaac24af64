from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import checks
from hpclab.launch.train import torchrunx_logs, train
from hpclab.run_folder import RunFolder


@pytest.mark.parametrize(
    ("variable", "option", "folder"),
    [
        ("/by/variable", "/by/option", "/by/variable"),
        ("", "/by/option", ""),
        (None, "/by/option", "/by/option"),
        (None, "", ""),
        (None, None, "/run/logs/torchrunx"),
    ],
)
def test_torchrunx_logs_by_priority(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, option: str | None, folder: str
) -> None:
    monkeypatch.delenv("TORCHRUNX_LOG_DIR", raising=False)
    if variable is not None:
        monkeypatch.setenv("TORCHRUNX_LOG_DIR", variable)
    assert torchrunx_logs(RunFolder(Path("/run")), option) == folder


def test_too_few_environments_for_the_ranks_write_nothing(tiny: Path, tmp_path: Path) -> None:
    overrides = ["env.num_envs_scope=global", "env.num_envs=5", "algorithm.num_steps_per_env=3"]
    with pytest.raises(ConfigError, match="leaves 1 to a rank of 4, so 3 samples an iteration"):
        train(tiny, overrides, gpu_ids=None, num_workers=4, torchrunx_log_dir=None)
    assert not (tmp_path / "runs").exists()


def test_a_log_folder_that_cannot_be_made_writes_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHRUNX_LOG_DIR", raising=False)
    with pytest.raises(ConfigError, match=r"/logs: cannot be torchrunx's log folder: .*tiny\.yaml is not a folder"):
        train(tiny, [], gpu_ids=None, num_workers=2, torchrunx_log_dir=str(tiny / "logs"))
    assert not (tmp_path / "runs").exists()


def test_a_motion_or_a_task_that_is_not_there_writes_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*overrides: str) -> None:
        train(tiny, list(overrides), gpu_ids=None, num_workers=1, torchrunx_log_dir=None)

    with pytest.raises(ConfigError, match=r"^env\.motion: /nope/walk\.npz: no such file$"):
        start("env.motion=/nope/walk.npz")
    monkeypatch.setattr(checks, "task_problem", lambda name: f"{name}.py:3: invalid syntax")
    with pytest.raises(ConfigError, match=r"^task: cartpole-balance: cartpole-balance\.py:3: invalid syntax$"):
        start()
    assert not (tmp_path / "runs").exists()


def test_a_gpu_that_does_not_exist_writes_nothing(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ConfigError, match="no GPU is visible here"):
        train(tiny, [], gpu_ids=["7"], num_workers=None, torchrunx_log_dir=None)
    assert not (tmp_path / "runs").exists()
