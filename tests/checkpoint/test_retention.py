"""Which checkpoints stay: the newest, those at round iterations, the best."""

from pathlib import Path

import pytest

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.retention import Retention, best_iteration
from tests.checkpoint.test_store import loaded_iteration, save

REWARD = "Train/mean_reward"


def kept(folder: Path, retention: Retention, rewards: dict[int, float]) -> list[int]:
    for iteration, reward in rewards.items():
        save(folder, iteration, retention=retention, **{REWARD: reward})
    return disk.iterations(folder)


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (Retention(), [60, 50, 40, 30, 20, 10]),
        (Retention(last=2), [60, 50]),
        (Retention(last=2, every=20), [60, 50, 40, 20]),
        (Retention(last=2, best=REWARD), [60, 50, 30]),
        (Retention(last=1, every=40, best=REWARD), [60, 40, 30]),
        (Retention(last=2, best="Train/other"), [60, 50]),
    ],
)
def test_what_stays(retention: Retention, expected: list[int], tmp_path: Path) -> None:
    rewards = {10: 1.0, 20: 4.0, 30: 9.0, 40: float("nan"), 50: 3.0, 60: 2.0}
    assert kept(tmp_path, retention, rewards) == expected
    assert loaded_iteration(tmp_path) == 60


def test_of_equal_ones_the_newer_is_best_and_a_damaged_one_never(tmp_path: Path) -> None:
    kept(tmp_path, Retention(), {10: 5.0, 20: 5.0, 30: 1.0, 40: 7.0})
    (tmp_path / "iter-000040" / "manifest.json").unlink()
    assert best_iteration(tmp_path, REWARD) == 20
    assert best_iteration(tmp_path, "Train/other") is None


@pytest.mark.parametrize("retention", [Retention(last=1), Retention(last=1, every=20), Retention(last=1, best=REWARD)])
def test_a_damaged_newer_one_takes_no_place_of_what_is_written(retention: Retention, tmp_path: Path) -> None:
    kept(tmp_path, Retention(), {20: 1.0, 50: 9.0})
    (tmp_path / "iter-000050" / "shared.pt").write_bytes(b"")
    save(tmp_path, 30, retention=retention, **{REWARD: 2.0})
    assert loaded_iteration(tmp_path) == 30
    assert (tmp_path / "latest").readlink() == Path("iter-000030")
