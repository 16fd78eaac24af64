"""What tuning follows while it trains: the largest loads, and what the simulation reports."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from hpclab.worker.tuning import watch_loads, watch_warnings


def test_the_largest_loads_of_all_steps_are_kept() -> None:
    rows, contacts, pairs = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(1).int()
    script = iter([([3, 9, 1, 0], 10, 41), ([4, 2, 1, 0], 30, 12)])

    def step() -> None:
        for tensor, value in zip((rows, contacts, pairs), next(script), strict=True):
            tensor.copy_(torch.tensor(value))

    sim = SimpleNamespace(step=step, loads=lambda: {"rows": rows, "contacts": contacts, "pairs": pairs})
    env = SimpleNamespace(sim=sim, num_envs=4)
    peaks = watch_loads(env)
    env.sim.step()
    env.sim.step()
    assert peaks() == {"njmax": 9, "nconmax": 11}  # 41 pairs in 4 worlds
    assert watch_loads(SimpleNamespace(sim=SimpleNamespace()))() == {}


def test_warnings_add_up_by_name() -> None:
    reports = iter([{"constraint_overflow": 2.0}, {}, {"constraint_overflow": 1.0, "bad_state": 1.0}])
    env = SimpleNamespace(read_diagnostics=lambda: next(reports))
    seen = watch_warnings(env)
    for _ in range(3):
        env.read_diagnostics()
    assert seen == {"constraint_overflow": 3.0, "bad_state": 1.0}
