"""The mirrored-gait error: what it is of policies whose symmetry is known, and the benchmark that trains for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks import symmetry
from benchmarks.mirrored_gait import Symmetrised, mirrored_gait, quiet_env

from hpclab.envs.tasks import load_task


def test_a_policy_is_as_symmetric_as_it_is_made() -> None:
    env = quiet_env(load_task("go1-velocity-flat"), 3)
    mirror = env.mirror()
    assert mirror is not None
    weights = 0.2 * torch.randn(
        env.observation_dims["actor"], env.num_actions, generator=torch.Generator().manual_seed(0)
    )

    def policy(observations: torch.Tensor) -> torch.Tensor:
        return torch.tanh(observations @ weights)

    short = {"warm_up_s": 0.1, "duration_s": 0.1}
    crooked = mirrored_gait(env, policy, **short)
    straight = mirrored_gait(env, Symmetrised(policy, mirror), **short)
    assert crooked["fallen"] == straight["fallen"] == 0.0
    assert crooked["action_error"] > 0.5
    assert straight["action_error"] < 1e-5
    assert straight["joint_error"] < 0.1 < 0.5 < crooked["joint_error"]  # the robot itself is not quite symmetric
    assert straight["velocity_error"] < 0.1 < 0.3 < crooked["velocity_error"]
    assert mirrored_gait(env, policy, **short) == crooked


def test_runs_are_trained_interrupted_gone_on_with_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "symmetry.json"
    small = ["actor.hidden_dims=[8]", "critic.hidden_dims=[8]", "algorithm.num_steps_per_env=4"]
    options = [str(tmp_path), *small, "--seeds", "1", "--iterations", "2", "--num-envs", "4", "--num-robots", "2"]
    assert symmetry.main([*options, "--limit-s", "0"]) == 1
    assert "not complete: plain-1, augmentation-1" in capsys.readouterr().out
    assert symmetry.main([*options, "--output", str(output)]) == 0
    report = json.loads(output.read_text())
    assert report["plain-1"]["joint_error"] > 0.0
    plain, augmented = report["means"]
    assert (plain["learn"], plain["seeds"], plain["joint_error_share"]) == ("plain", 1, 1.0)
    assert augmented["joint_error_share"] == pytest.approx(augmented["joint_error"] / plain["joint_error"])
    assert "augmentation" in capsys.readouterr().out
