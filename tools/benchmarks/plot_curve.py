#!/usr/bin/env python3
"""Draw learning curves: ours of several seeds, and one to compare with, over iterations and over time.

    .venv/bin/python tools/benchmarks/plot_curve.py [--ours FILE] [--reference FILE] [--output docs/g1-flat-curve.svg]

Both files hold `seeds`: for each seed one row an iteration, of the `columns` mean_reward, mean_episode_length and
seconds_since_start. Needs matplotlib, which the extra `dev` brings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

_RESULTS = Path(__file__).resolve().with_name("results")
_PICTURE = Path(__file__).resolve().parents[2] / "docs" / "g1-flat-curve.svg"
_VALUES = {"mean_reward": "mean reward", "mean_episode_length": "mean episode length [control steps]"}
_REACHED_AT = 400
"""Iteration of the reference whose level is looked for in ours."""
_COMPARED_FROM = 100
"""Iteration from which the curves are compared: before, all fall."""
_SMOOTH = 20
"""Iterations over which levels are averaged: both curves are means of 100 episodes, and noisy."""


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return a file's columns by seed, each (iterations,)."""
    content: dict[str, Any] = json.loads(path.read_text())
    return {
        seed: dict(zip(content["columns"], np.asarray(rows, dtype=float).T, strict=True))
        for seed, rows in content["seeds"].items()
    }


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the mean of each value and those before it, at most `_SMOOTH` in all."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    counts = np.minimum(np.arange(1, len(values) + 1), _SMOOTH)
    ends = np.arange(1, len(values) + 1)
    return (sums[ends] - sums[ends - counts]) / counts


def reached(curve: dict[str, np.ndarray], reference: dict[str, np.ndarray], value: str) -> float | None:
    """Return when a curve first reaches the level that the reference has at iteration 400 [s]; None: it never does."""
    level = smooth(reference[value])[_REACHED_AT]
    there = np.flatnonzero(smooth(curve[value]) >= level)
    return float(curve["seconds_since_start"][there[0]]) if len(there) else None


def agreement(
    ours: Sequence[dict[str, np.ndarray]], reference: dict[str, np.ndarray], value: str
) -> tuple[int, np.ndarray]:
    """Compare the reference with our seeds in windows of `_SMOOTH` iterations, from `_COMPARED_FROM` on.

    Returns:
        In how many windows the reference lies between our lowest and our highest seed; and for each window its distance
        from our seeds' mean, in standard deviations of what one more seed would be expected to show.
    """
    end = min(len(curve[value]) for curve in (*ours, reference))
    starts = range(_COMPARED_FROM, end - _SMOOTH + 1, _SMOOTH)
    seeds = np.array([[curve[value][start : start + _SMOOTH].mean() for start in starts] for curve in ours])
    there = np.array([reference[value][start : start + _SMOOTH].mean() for start in starts])
    inside = (seeds.min(axis=0) <= there) & (there <= seeds.max(axis=0))
    spread = seeds.std(axis=0, ddof=1) * np.sqrt(1.0 + 1.0 / len(seeds))
    return int(inside.sum()), (there - seeds.mean(axis=0)) / spread


def draw(ours: dict[str, dict[str, np.ndarray]], reference: dict[str, np.ndarray], name: str) -> Figure:
    """Draw both values over iterations and over time: each seed of ours, and the reference `name`."""
    figure = Figure(figsize=(11.0, 7.0), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for row, (value, label) in zip(axes, _VALUES.items(), strict=True):
        for panel, over in zip(row, ("iteration", "seconds_since_start"), strict=True):
            for seed, curve in ours.items():
                panel.plot(_over(curve, over), curve[value], linewidth=0.9, alpha=0.8, label=f"hpclab, seed {seed}")
            panel.plot(_over(reference, over), reference[value], color="black", linewidth=0.9, label=name)
            panel.grid(alpha=0.3)
            panel.set_xlim(left=0.0)
        row[0].set_ylabel(label)
    for panel, label in zip(axes[-1], ("iteration", "time since start [s]"), strict=True):
        panel.set_xlabel(label)
    axes[0, 0].legend()
    figure.suptitle("Unitree G1 on flat ground, 4096 environments, one NVIDIA H200")
    return figure


def _over(curve: dict[str, np.ndarray], over: str) -> np.ndarray:
    return np.arange(len(curve["mean_reward"])) if over == "iteration" else curve[over]


def main(arguments: list[str] | None = None) -> None:
    """Parse the options, draw, and say when each seed reached the reference's level."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", type=Path, default=_RESULTS / "g1_flat_h200_curves.json")
    parser.add_argument("--reference", type=Path, default=_RESULTS / "g1_flat_mjlab_curve.json")
    parser.add_argument("--name", default="mjlab 1.6.0 + RSL-RL 5.4.2", help="of the reference")
    parser.add_argument("--output", type=Path, default=_PICTURE)
    options = parser.parse_args(arguments)
    ours = read(options.ours)
    (reference,) = read(options.reference).values()
    # The same picture whenever it is drawn: no date, no random names, and text as text.
    with mpl.rc_context({"svg.hashsalt": "hpclab", "svg.fonttype": "none"}):
        draw(ours, reference, options.name).savefig(options.output, metadata={"Date": None})
    for value in _VALUES:
        times = {seed: reached(curve, reference, value) for seed, curve in ours.items()}
        listed = ", ".join(f"seed {seed} {'never' if at is None else f'{at:.0f} s'}" for seed, at in times.items())
        when = reference["seconds_since_start"][_REACHED_AT]
        print(f"{value} of the reference at iteration {_REACHED_AT} ({when:.0f} s): {listed}")
        if len(ours) < 2:
            continue
        inside, distances = agreement(list(ours.values()), reference, value)
        print(
            f"  from iteration {_COMPARED_FROM} on it lies within our seeds in {inside} of {len(distances)} windows of "
            f"{_SMOOTH} iterations, and nowhere further than {np.abs(distances).max():.1f} standard deviations"
        )
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
