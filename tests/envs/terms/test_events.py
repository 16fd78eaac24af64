"""Events: where episodes start, and what disturbs them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hpclab.envs.events import IntervalEvent
from hpclab.envs.spec import EventTerm
from hpclab.envs.terms import events
from tests.envs.terms.bare_env import bare_env


def test_reset_moves_and_turns_the_root_within_its_ranges() -> None:
    torch.manual_seed(0)
    qpos, qvel = torch.zeros(5000, 9), torch.zeros(5000, 8)
    qpos[:, :4] = torch.tensor([0.0, 0.0, 0.76, 1.0])
    reset = events.ResetRootUniform(bare_env(5000), x=(-0.5, 0.5), y=(-0.2, 0.2), z=(0.01, 0.05), yaw=(-3.14, 3.14))
    reset(qpos, qvel)
    for column, (low, high) in enumerate(((-0.5, 0.5), (-0.2, 0.2), (0.77, 0.81))):
        assert qpos[:, column].min().item() == pytest.approx(low, abs=1e-2)
        assert qpos[:, column].max().item() == pytest.approx(high, abs=1e-2)
    torch.testing.assert_close(qpos[:, 3:7].norm(dim=1), torch.ones(5000))
    assert qpos[:, 4:6].abs().max() == 0
    yaw = 2 * torch.atan2(qpos[:, 6], qpos[:, 3])
    assert yaw.min().item() == pytest.approx(-3.14, abs=1e-2)
    assert yaw.var().item() == pytest.approx(3.14**2 / 3, rel=0.05)
    assert qpos[:, 7:].abs().max() == 0
    assert qvel.abs().max() == 0


def test_push_adds_a_world_frame_velocity() -> None:
    # The body is turned by 90 degrees about z: its x axis is the world's y.
    axes = {"x": [[0.0, 1.0, 0.0]], "y": [[-1.0, 0.0, 0.0]], "z": [[0.0, 0.0, 1.0]]}
    pushed = {}
    sim = SimpleNamespace(
        qvel=torch.zeros(1, 8), add_velocity=lambda delta, mask: pushed.update(delta=delta, mask=mask)
    )
    env = bare_env(1, {name: torch.tensor(axis) for name, axis in axes.items()}, sim=sim)
    linear, angular = ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)), ((0.4, 0.4), (0.5, 0.5), (0.6, 0.6))
    push = events.PushRoot(env, axes=("x", "y", "z"), linear=linear, angular=angular)
    due = torch.tensor([True])
    push(due)
    assert pushed["delta"].tolist() == [pytest.approx([1.0, 2.0, 3.0, 0.5, -0.4, 0.6, 0.0, 0.0])]
    assert pushed["mask"] is due


def test_interval_events_come_at_each_environments_own_time() -> None:
    torch.manual_seed(0)
    seen: list[torch.Tensor] = []
    term = EventTerm(lambda env, due: seen.append(due.clone()), mode="interval", interval_s=(0.1, 0.2))
    event = IntervalEvent(bare_env(500), "push", term)
    event.reset(torch.ones(500, dtype=torch.bool))
    for _ in range(1000):
        event.step()
    assert all(due.any() for due in seen), "on the CPU an event of nobody is left out"
    count = torch.stack(seen).sum(dim=0)
    # Times of 0.1 to 0.2 s take 6 to 10 control steps of 0.02 s.
    assert count.min() >= 1000 / 10 - 1
    assert count.max() <= 1000 / 5
    assert count.float().mean().item() == pytest.approx(1000 / 8, rel=0.05)
    gaps = torch.stack(seen)[:, 0].nonzero().flatten().diff()
    assert gaps.min() >= 5
    assert gaps.max() <= 10
