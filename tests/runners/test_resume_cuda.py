"""Resume on a GPU: everything is put back to the last bit; only what contact physics computes from it may differ."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hpclab.run_folder import RunFolder
from hpclab.runners.training_state import TrainingState
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.runners.runs import checkpoint_files, curve, differences, small_config, write_config

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def config_of(task: str, iterations: int) -> Any:
    config = small_config(run={"max_iterations": iterations}, env={"num_envs": 64}, sync={"preset": "global"})
    return config.model_copy(update={"task": task})


def train(run: RunFolder, attempt: int = 0, device: str = "0") -> None:
    run_worker(WorkerSpec(str(run.path), attempt, (device,), console=False), WorkerContext.single())


def test_4_and_4_iterations_equal_8_where_the_physics_is_deterministic(tmp_path: Path) -> None:
    whole = write_config(tmp_path / "whole", config_of("cartpole-balance", 8))
    train(whole)
    parts = write_config(tmp_path / "parts", config_of("cartpole-balance", 4))
    train(parts)
    write_config(tmp_path / "parts", config_of("cartpole-balance", 8))
    torch.manual_seed(1)
    train(parts, 1)
    assert differences(checkpoint_files(whole, 8), checkpoint_files(parts, 8)) == []
    assert curve(whole) == curve(parts)


def test_every_tensor_of_g1_training_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_config(tmp_path, config_of("g1-velocity-flat", 2))
    train(run)
    saved = checkpoint_files(run, 2)
    restored: dict[str, Any] = {}
    original = TrainingState.restore

    def restore(state: TrainingState, checkpoint: Any) -> None:
        original(state, checkpoint)
        restored["shared.pt"], restored["rank-0000.pt"] = state.capture(checkpoint.shared["counters"])

    monkeypatch.setattr(TrainingState, "restore", restore)
    torch.manual_seed(1)
    train(run, 1)  # is complete: nothing but the restoring happens
    assert "torch_cuda" in saved["rank-0000.pt"]["random_streams"]
    assert len(saved["rank-0000.pt"]["environment"]["sim"]) > 0
    assert differences(saved, restored) == []
