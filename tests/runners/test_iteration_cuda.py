"""Whole iterations on a GPU: none waits for the device but to read its statistics, and graphs change no number."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from hpclab.config.schema import RunConfig
from hpclab.envs.sim.warp import WarpSim
from hpclab.metrics import reduce
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.worker.trial import trial
from tests.runners.runs import differences, small_config

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CAPTURED = 3
"""Iterations after which everything runs from graphs."""


class Records:
    """A sink that keeps all records."""

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []

    def write(self, record: Record) -> None:
        self.values.append({tag: value for tag, value in record.values.items() if not tag.startswith("Perf/")})

    def close(self) -> None:
        pass


def config(task: str, *, cuda_graphs: bool, preset: str = "global") -> RunConfig:
    small = small_config(
        run={"max_iterations": 100, "cuda_graphs": cuda_graphs}, env={"num_envs": 64}, sync={"preset": preset}
    )
    return small.model_copy(update={"task": task})


def fix_physics(sim: WarpSim) -> None:
    """Replace the simulation by arithmetic whose order never changes, under which robots fall all the same."""
    generator = torch.Generator(sim.device).manual_seed(5)
    rows = (sim.qpos.shape[1] + sim.qvel.shape[1], sim._sensordata.shape[1])
    mixing = torch.randn(rows, generator=generator, device=sim.device)
    free = sim.qvel.shape[1] - sim.ctrl.shape[1]

    def forward() -> None:
        state = torch.cat([sim.qpos, sim.qvel], dim=1)
        sim._sensordata.copy_(torch.sin(state @ mixing))
        for substep in range(sim.num_substeps):
            sim._history_tensor[:, substep].copy_(sim._sensordata * (10.0 * substep))

    def step(control: Callable[[], None] | None = None) -> None:
        assert control is None, "the actuators of this task need no control between substeps"
        sim.qvel[:, free:].mul_(0.9).add_(sim.ctrl, alpha=0.1)
        sim.qpos[:, -sim.ctrl.shape[1] :].add_(sim.qvel[:, free:], alpha=0.02)
        sim.diverged.copy_(sim.qvel[:, -1].abs() > 0.5)
        forward()

    sim.step = step  # type: ignore[method-assign]
    sim.forward = forward  # type: ignore[method-assign]


def run(runner: OnPolicyRunner, iterations: int) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Train and return what was reported and what was learned."""
    sink = Records()
    reporter = Reporter([sink])
    for _ in range(iterations):
        runner.iterate(reporter)
    state = {"algorithm": runner.algorithm.state_dict(), "env": runner.env.state_dict()}
    return sink.values, _on_host(state)


def _on_host(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _on_host(value) for key, value in state.items()}
    return state.to("cpu", copy=True) if isinstance(state, torch.Tensor) else state


class OneWait:
    """Brings statistics to the host, which alone may wait for the device."""

    def __init__(self) -> None:
        self.waits = 0

    def __call__(self, numbers: torch.Tensor) -> list[float]:
        self.waits += 1
        torch.cuda.set_sync_debug_mode("default")
        try:
            return cast(list[float], numbers.tolist())
        finally:
            torch.cuda.set_sync_debug_mode("error")


@pytest.mark.parametrize("cuda_graphs", [False, True])
@pytest.mark.parametrize(("task", "preset"), [("cartpole-balance", "mjlab"), ("g1-velocity-flat", "global")])
def test_an_iteration_waits_only_to_read_its_statistics(
    task: str, cuda_graphs: bool, preset: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    device = torch.device("cuda", 0)
    with trial(config(task, cuda_graphs=cuda_graphs, preset=preset), device=device, threads=1) as runner:
        run(runner, CAPTURED)
        statistics = OneWait()
        monkeypatch.setattr(reduce, "_to_host", statistics)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(2):
                runner.iterate(Reporter())
        finally:
            torch.cuda.set_sync_debug_mode("default")
    captured = [record.getMessage() for record in caplog.records if "captured in a CUDA graph" in record.getMessage()]
    assert statistics.waits == 2
    assert len(captured) == (3 if cuda_graphs else 0), caplog.text


@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_graphs_change_no_number_of_g1_under_fixed_physics(preset: str) -> None:
    device = torch.device("cuda", 0)
    results = []
    for cuda_graphs in (False, True):
        with trial(config("g1-velocity-flat", cuda_graphs=cuda_graphs, preset=preset), device=device, threads=1) as it:
            fix_physics(it.env.sim)
            results.append(run(it, 6))
    (eager_curve, eager), (graph_curve, graph) = results
    assert sum(values["Episode_Termination/fell_over"] for values in eager_curve) > 0, "no episode ended"
    assert eager_curve == graph_curve
    assert differences(eager, graph) == []
