"""Every config file that is shipped trains, scaled down to seconds; some with what can be added to PPO."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.config.load import dump_config, load_config
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder
from tests.runners.runs import attempt

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SMALL = [
    "run.max_iterations=3",
    "env.num_envs=4",
    "env.threads=1",
    "algorithm.num_steps_per_env=8",
    "algorithm.num_learning_epochs=2",
    "actor.hidden_dims=[16]",
    "critic.hidden_dims=[16]",
    "metrics.tensorboard=false",
]
EXTRAS = {
    "go1-rough": "algorithm={symmetry: {mirror_loss_coef: 0.1}, rnd: {}}",
    "g1-rough": "algorithm.symmetry={mirror_loss_coef: 0.1}",
    "g1-tracking": "algorithm={symmetry: {}, rnd: {}}",
}
"""By config."""
CASES = [pytest.param(path, [], id=path.stem) for path in CONFIGS]
CASES += [pytest.param(path, [EXTRAS[path.stem]], id=f"{path.stem}-more") for path in CONFIGS if path.stem in EXTRAS]


@pytest.mark.parametrize(("path", "more"), CASES)
def test_three_iterations_of_a_shipped_config(path: Path, more: list[str], tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    config = load_config(path, [*more, *SMALL])
    run.config.write_text(dump_config(config))
    outcome = attempt(run)
    assert (outcome.kind, outcome.iteration) == ("completed", 3)
    curve = read_curve(run.metrics / "metrics.jsonl")
    assert len(curve) == 3
    losses = {tag for line in curve for tag in line if tag.startswith("Loss/")}
    assert losses
    assert ("Loss/symmetry_loss" in losses) == (getattr(config.algorithm, "symmetry", None) is not None)
    assert all(abs(line[tag]) < 1e6 for line in curve for tag in losses)  # and so not NaN
