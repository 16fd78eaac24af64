"""The GPU benchmark, tried out on the CPU: what it starts, what it reads, and that no failure loses the rest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks import gpu, training_runs
from benchmarks.memory import MemoryWatch

ROOT = Path(__file__).parents[2]
SMALL = ["actor.hidden_dims=[8]", "critic.hidden_dims=[8]", "algorithm.num_steps_per_env=4", "env.threads=1"]
PEER = """
import ast
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
gpu_ids = ast.literal_eval(options["--gpu-ids"])  # None or a list, as mjlab's parser wants it
assert gpu_ids is None or gpu_ids == list(range(len(gpu_ids)))
writer = EventFileWriter(options["--log-root"] + "/g1_velocity/now")
for iteration in range(int(options["--agent.max-iterations"])):
    values = [Summary.Value(tag=f"Perf/{name}_time", simple_value=0.25) for name in ("collection", "learning")]
    writer.add_event(Event(wall_time=1000.0 + 0.5 * iteration, step=iteration, summary=Summary(value=values)))
writer.close()
"""


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A Python whose mjlab trains 2 iterations a second."""
    program = tmp_path / "peer.py"
    program.write_text(PEER)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = mjlab.scripts.train ] && shift 3 && exec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    return python


def test_measurements_are_kept_as_they_come_also_when_one_fails(
    tmp_path: Path, peer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training_runs, "_TICK_S", 0.1)
    output = tmp_path / "gpu.json"
    options = ["--device", "cpu", "--num-envs", "8", "--gpus", "1", "--repeats", "2", "--peer", str(peer)]
    options += ["--iterations", "6", "--leak", "150", "--precision", "no-such-precision", "--limit", "100"]
    config = ["--config", str(ROOT / "configs" / "cartpole.yaml"), "--output", str(output), "--set", *SMALL]
    assert gpu.main([*options, *config]) == 1
    report = json.loads(output.read_text())
    (result,) = report["results"]
    assert result["train"]["iterations"] == 6
    assert result["train_to_physics"] == pytest.approx(
        result["train"]["train_steps_per_s"] / result["parts"]["physics_steps_per_s"], abs=1e-3
    )
    assert result["parts"]["policy_s"] > 0
    assert result["peer"] == {
        **{"iterations": 6, "collect_s": 0.25, "learn_s": 0.25, "other_s": 0.0},
        "train_steps_per_s": 2 * 8 * 24,
    }
    assert result["train_to_peer"] == pytest.approx(result["train"]["train_steps_per_s"] / (2 * 8 * 24), abs=0.01)
    assert "no-such-precision" in report["precision"]["no-such-precision"]["error"]
    assert report["leak"]["iterations"] > 50
    assert report["leak"]["resident_mib"] > 100
    assert "device_mib" not in report["leak"]
    assert "train_to_peer" in capsys.readouterr().out


@pytest.mark.parametrize("num_gpus", [0, 1, 2])
def test_the_peer_trains_on_any_number_of_gpus(tmp_path: Path, peer: Path, num_gpus: int) -> None:
    logs = training_runs.train_peer(str(peer), tmp_path, 8, num_gpus, 6, limit_s=60.0)
    figures = training_runs.read_peer(logs, 8, num_gpus)
    assert figures["train_steps_per_s"] == 2 * 8 * 24 * max(1, num_gpus)


def test_a_run_whose_time_is_over_is_interrupted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    waiting = [sys.executable, "-c", "import signal; print('waits', flush=True); signal.pause()"]
    assert training_runs.run_limited(waiting, log, limit_s=1.0)
    assert "KeyboardInterrupt" in log.read_text()
    with pytest.raises(training_runs.RunError, match="ended with 3"):
        training_runs.run_limited([sys.executable, "-c", "raise SystemExit(3)"], log, limit_s=30.0)


def test_growth_of_memory_is_found() -> None:
    watch = MemoryWatch(None)
    watch.samples = [{"iteration": i, "resident_mib": 1000.0 + (50.0 if i < 10 else i)} for i in range(100)]
    assert watch.summary()["resident_mib_growth"] == pytest.approx(50.0)
