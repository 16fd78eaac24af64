"""The profile of an iteration: its tables hold what was run, and device work goes to who launched it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import device_trace, profile

ROOT = Path(__file__).parents[2]


def test_an_iteration_is_profiled_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "profile.json"
    small = ["actor.hidden_dims=[8]", "critic.hidden_dims=[8]", "algorithm.num_steps_per_env=4", "env.threads=1"]
    options = ["--device", "cpu", "--num-envs", "8", "--iterations", "2", "--profiled", "1", "--output", str(output)]
    assert profile.main([str(ROOT / "configs" / "cartpole.yaml"), *small, *options]) == 0
    report = json.loads(output.read_text())
    assert report["iterations"]["train_steps_per_s"] > 0
    assert report["profile"]["kernels"] == report["profile"]["host_waits"] == report["host_waits"]["count"] == 0
    whole = {part["part"]: part["host_ms"] for part in report["profile"]["parts"]}
    assert {"the rollout", "the returns", "the update", "the statistics"} <= whole.keys()
    parts = {part["part"]: part["host_ms"] for part in report["without_graphs"]["parts"]}
    assert {"policy", "physics", "forward", "rewards", "terminations", "resets", "observations"} <= parts.keys()
    assert sum(parts.values()) == pytest.approx(1000 * report["without_graphs"]["iteration_s"], rel=0.2)
    assert any(row["name"] == "aten::addmm" for row in report["profile"]["top_operators"])
    assert "parts of an iteration, without CUDA graphs" in capsys.readouterr().out


def test_device_work_belongs_to_the_part_that_launched_it(tmp_path: Path) -> None:
    def event(category: str, name: str, start: float, duration: float, correlation: int = 0) -> dict[str, object]:
        return {
            **{"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration},
            "args": {"correlation": correlation},
        }

    events = [
        event("user_annotation", "update", 0, 100),
        event("user_annotation", "optimiser", 40, 20),
        event("cuda_runtime", "cudaLaunchKernel", 10, 2, 1),
        event("cuda_runtime", "cudaGraphLaunch", 45, 2, 2),
        event("cuda_runtime", "cudaStreamSynchronize", 90, 8, 3),
        event("kernel", "void cutlass::gemm<float>(int)", 60, 30, 1),
        event("kernel", "_solve_0123abcd_cuda_kernel_forward", 85, 10, 2),
        event("kernel", "_solve_0123abcd_cuda_kernel_forward", 120, 10, 2),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 130, 1, 3),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = device_trace.read(path)
    costs = device_trace.costs(trace)
    assert (costs["update"].host_us, costs["update"].device_us, costs["update"].kernels) == (80, 31, 2)
    assert (costs["optimiser"].host_us, costs["optimiser"].device_us, costs["optimiser"].kernels) == (20, 20, 2)
    assert device_trace.busy_us(trace) == 46
    counts = device_trace.host_counts(trace, iterations=1)
    assert (counts["kernels"], counts["graph_launches"], counts["kernel_launches"]) == (3, 1, 1)
    assert (counts["host_waits"], counts["host_wait_ms"], counts["copies"]) == (1, 0.01, {"DtoH": 1})
    assert [row["name"] for row in device_trace.by_group(trace.kernels, 1)] == ["matrix products", "simulation"]
    assert [(row["name"], row["calls"]) for row in device_trace.by_name(trace.kernels, 1, 5)] == [
        ("gemm", 1.0),
        ("_solve", 2.0),
    ]
