"""The picture of learning curves: both sides are in it, and the time to a level is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import plot_curve


def write(path: Path, seeds: dict[str, list[list[float]]]) -> Path:
    path.write_text(
        json.dumps({"columns": ["mean_reward", "mean_episode_length", "seconds_since_start"], "seeds": seeds})
    )
    return path


def ramp(slope: float, seconds: float) -> list[list[float]]:
    return [[slope * i, 2.0 * slope * i, seconds * i] for i in range(430)]


def test_curves_are_drawn_and_the_time_to_the_references_level_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = write(tmp_path / "ours.json", {"1": ramp(2.0, 0.5), "2": ramp(0.5, 0.5)})
    reference = write(tmp_path / "reference.json", {"42": ramp(1.0, 1.0)})
    picture = tmp_path / "curve.svg"
    options = ["--ours", str(ours), "--reference", str(reference), "--name", "the other", "--output", str(picture)]
    plot_curve.main(options)
    text = picture.read_text()
    assert all(label in text for label in ("hpclab, seed 1", "hpclab, seed 2", "the other", "time since start [s]"))
    # Smoothed over 20 iterations a ramp lags by 9.5: 390.5 is reached at iteration 204.75, so at 205.
    printed = capsys.readouterr().out
    assert "at iteration 400 (400 s): seed 1 102 s, seed 2 never" in printed
    # Slopes 2 and 0.5 have mean 1.25 and standard deviation 1.06; with a third seed's own: 1.30. 0.25 is 0.19 of it.
    assert "within our seeds in 16 of 16 windows of 20 iterations, and nowhere further than 0.2 standard" in printed
    plot_curve.main(options)
    assert picture.read_text() == text


def test_a_reference_above_every_seed_is_told_apart() -> None:
    ours = [{"reward": slope * np.arange(140.0)} for slope in (1.0, 3.0)]
    inside, distances = plot_curve.agreement(ours, {"reward": 5.0 * np.arange(140.0)}, "reward")
    assert inside == 0
    # Mean 2, standard deviation 1.414, with a third seed's own 1.732: 3 is 1.732 of it, in both windows.
    assert distances == pytest.approx([3.0**0.5, 3.0**0.5])


def test_smoothing_takes_values_so_far() -> None:
    values = np.arange(40.0)
    assert plot_curve.smooth(values)[[0, 1, 19, 39]].tolist() == [0.0, 0.5, 9.5, 29.5]


def test_the_kept_curves_can_be_read() -> None:
    for name in ("g1_flat_h200_curves.json", "g1_flat_mjlab_curve.json"):
        for curve in plot_curve.read(plot_curve._RESULTS / name).values():
            assert all(len(curve[column]) == 430 for column in ("mean_reward", "seconds_since_start"))
