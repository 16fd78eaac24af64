"""Contact times and counts over substeps, worked by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from hpclab.envs.terms.sensors import side_by_side
from hpclab.envs.terms.trackers import Contacts, FootHeights, SubstepsWithForce
from tests.envs.terms.bare_env import bare_env

FOUND, FORCE = ("left_found", "right_found"), ("left_force", "right_force")


def contacts_env(num_envs: int) -> tuple[Contacts, Tensor]:
    """Return the tracker and the (N, 4, 2) counts of contacts that it reads in each substep."""
    history = torch.zeros(num_envs, 4, 2)
    sensors = {name: torch.zeros(num_envs, 1) for name in FOUND} | {name: torch.zeros(num_envs, 3) for name in FORCE}
    sim = SimpleNamespace(sensor_history=lambda name: history[:, :, FOUND.index(name) : FOUND.index(name) + 1])
    return Contacts(bare_env(num_envs, sensors, sim=sim), name="feet", found=FOUND, force=FORCE), history


def test_times_follow_every_substep() -> None:
    feet, history = contacts_env(1)
    history[0, :, 0] = torch.tensor([0.0, 3.0, 0.0, 0.0])  # a touch in the second substep
    history[0, :, 1] = torch.tensor([0.0, 0.0, 0.0, 1.0])  # lands in the last
    feet.after_step()
    assert feet.air_time.tolist() == [pytest.approx([0.01, 0.0])]
    assert feet.contact_time.tolist() == [pytest.approx([0.0, 0.005])]
    assert feet.in_contact.tolist() == [[False, True]]
    assert feet.first_contact.tolist() == [[False, True]]


def test_contact_is_first_for_one_control_step() -> None:
    feet, history = contacts_env(1)
    feet.after_step()
    assert feet.air_time.tolist() == [pytest.approx([0.02, 0.02])]
    history.fill_(1.0)
    feet.after_step()
    assert feet.contact_time.tolist() == [pytest.approx([0.02, 0.02])]
    assert feet.first_contact.all()
    feet.after_step()
    assert feet.contact_time.tolist() == [pytest.approx([0.04, 0.04])]
    assert not feet.first_contact.any()
    assert feet.air_time.tolist() == [[0.0, 0.0]]


def test_times_agree_with_a_loop_over_substeps() -> None:
    torch.manual_seed(0)
    feet, history = contacts_env(200)
    air, contact = torch.zeros(200, 2), torch.zeros(200, 2)
    for _ in range(30):
        history.copy_((torch.rand_like(history) < 0.4) * 2.0)
        feet.after_step()
        for substep in range(4):
            touches = history[:, substep] > 0
            air = torch.where(touches, 0.0, air + 0.005)
            contact = torch.where(touches, contact + 0.005, 0.0)
        torch.testing.assert_close(feet.air_time, air, atol=1e-6, rtol=0)
        torch.testing.assert_close(feet.contact_time, contact, atol=1e-6, rtol=0)


def test_reset_forgets_the_times_of_masked_environments() -> None:
    feet, _ = contacts_env(2)
    feet.after_step()
    feet.reset(torch.tensor([True, False]))
    assert feet.air_time.tolist() == [[0.0, 0.0], pytest.approx([0.02, 0.02])]


def test_count_of_substeps_with_force() -> None:
    history = torch.zeros(2, 4, 3)
    history[0, 1] = torch.tensor([6.0, 0.0, 8.1])  # just above 10 N
    history[0, 2] = torch.tensor([0.0, 10.0, 0.0])  # not above
    env = bare_env(2, sim=SimpleNamespace(sensor_history=lambda name: history))
    tracker = SubstepsWithForce(env, force="self", threshold_n=10.0)
    tracker.after_step()
    assert tracker.count.tolist() == [1.0, 0.0]


def test_heights_change_only_before_observations_and_stay_within_reach_of_the_rays() -> None:
    sensors = {"left": torch.tensor([[0.0, 0.0, -0.01]]), "right": torch.tensor([[0.0, 0.0, 1.5]])}
    tracker = FootHeights(bare_env(1, sensors), name="heights", positions=("left", "right"))
    tracker.after_step()
    tracker.reset(torch.tensor([True]))
    assert tracker.height.tolist() == [[0.0, 0.0]]
    tracker.before_observations()
    assert tracker.height.tolist() == [[0.0, 1.0]]


def test_sensors_at_unequal_distances_have_no_common_view() -> None:
    env = bare_env(1, {"a": torch.ones(1, 2), "b": torch.ones(1, 2), "gap": torch.ones(1, 1), "c": torch.ones(1, 2)})
    assert side_by_side(env, ("a", "b")).shape == (1, 2, 2)
    with pytest.raises(ValueError, match="equal distances"):
        side_by_side(env, ("a", "b", "c"))
