"""Training in CUDA graphs on a GPU: the same numbers as without, and no wait inside an iteration."""

import logging
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from hpclab.run_folder import RunFolder
from hpclab.runners.capture import Captured
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.runners.runs import checkpoint_files, curve, differences, small_config, write_config

_ENVIRONMENT = dict(os.environ)  # before a run in this process chooses its GPU

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def train_on_gpu(folder: Path, *, cuda_graphs: bool, normalizer: str) -> RunFolder:
    config = small_config(
        run={"max_iterations": 6, "save_interval": 100, "cuda_graphs": cuda_graphs},
        env={"num_envs": 64},
        sync={"normalizer": normalizer},
    )
    run = write_config(folder, config)
    run_worker(WorkerSpec(str(run.path), 0, ("0",), console=False), WorkerContext.single())
    return run


@pytest.mark.parametrize("normalizer", ["local", "global"])
def test_graphs_change_no_number_where_the_physics_is_deterministic(tmp_path: Path, normalizer: str) -> None:
    eager = train_on_gpu(tmp_path / "eager", cuda_graphs=False, normalizer=normalizer)
    graphs = train_on_gpu(tmp_path / "graphs", cuda_graphs=True, normalizer=normalizer)
    log = graphs.rank_log(0, 0).read_text()
    assert "the rollout captured in a CUDA graph" in log
    assert "the update captured in a CUDA graph" in log
    assert curve(eager) == curve(graphs)
    one, other = (checkpoint_files(run, 6)["shared.pt"] for run in (eager, graphs))
    assert differences(one, other) == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_ranks_with_collectives_in_their_graphs_end_in_good_order(tmp_path: Path) -> None:
    small = "env.num_envs=64 actor.hidden_dims=[16] critic.hidden_dims=[16] sync.preset=global"
    command = [sys.executable, "-m", "hpclab", "train", "configs/cartpole.yaml", *small.split()]
    command += [f"run.root={tmp_path}", "run.name=two", "run.max_iterations=6", "--gpu-ids", "0", "1"]
    subprocess.run(command, check=True, timeout=200, env=_ENVIRONMENT)
    run = RunFolder(tmp_path / "two")
    assert [line["iteration"] for line in curve(run)] == list(range(6))
    assert all("the update captured in a CUDA graph" in run.rank_log(0, rank).read_text() for rank in range(2))


def test_what_cannot_be_captured_runs_plainly_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    device = torch.device("cuda", 0)
    values, noise = torch.zeros(3, device=device), torch.zeros(1, device=device)
    torch.cuda.manual_seed(1)
    drawn = [torch.rand(1, device=device).item() for _ in range(5)]
    torch.cuda.manual_seed(1)
    stream = torch.cuda.current_stream()

    def work() -> torch.Tensor:
        values.add_(1.0)
        noise.uniform_()
        values.sum().item()  # waits: not allowed in a capture
        return values

    captured = Captured(work, name="waiting work", device=device, enabled=True, guard=nullcontext)
    with caplog.at_level(logging.WARNING):
        assert [captured() is values and noise.item() for _ in range(5)] == drawn
    assert torch.cuda.current_stream() == stream
    assert "waiting work cannot be captured" in caplog.text
    assert values.tolist() == [5.0, 5.0, 5.0]
