"""What goes into a checkpoint comes out the same."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from hpclab.checkpoint.state import (
    apply_difference,
    capture_random_streams,
    difference,
    from_bytes,
    restore_random_streams,
    shapes,
    to_bytes,
    to_host,
)
from hpclab.distributed.audit import fingerprints

CPU = torch.device("cpu")


def digests(state: object) -> torch.Tensor:
    return fingerprints(state, CPU)


def draw() -> tuple[float, float, float, float, float]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.standard_normal()),
        float(np.random.random()),
        float(torch.randn(())),
    )


def test_random_streams_go_on_where_they_were() -> None:
    random.gauss(0, 1)  # leaves a second value in the cache, as NumPy's next line does
    np.random.standard_normal()
    state = from_bytes(to_bytes(capture_random_streams(CPU)), "test")
    expected = [draw(), draw()]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert draw() != expected[0]
    restore_random_streams(state, CPU)
    assert [draw(), draw()] == expected


def test_a_view_does_not_drag_its_storage_along() -> None:
    large = torch.zeros(100_000)
    data = to_bytes({"view": large[:3]})
    assert len(data) < 10_000
    assert torch.equal(from_bytes(data, "test")["view"], large[:3])


def test_what_cannot_be_loaded_safely_is_refused_when_saved() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        to_bytes({"path": Path("x")})


def test_shapes_name_tensors_by_path() -> None:
    state = {"actor": {"weight": torch.zeros(2, 3)}, "groups": [{"lr": torch.tensor(1.0)}], "count": 3}
    assert shapes(state) == {"actor/weight": [2, 3], "groups/0/lr": []}


def test_only_what_differs_from_rank_0_is_kept_and_put_back() -> None:
    def state(mean: float, count: int) -> dict:
        return {"weight": torch.ones(4), "normalizer": {"mean": torch.tensor([mean])}, "groups": [{"count": count}]}

    leader, mine = state(1.0, 7), state(2.0, 8)
    changes = difference(mine, digests(leader))
    assert [path for path, _ in changes] == [["normalizer", "mean"], ["groups", 0, "count"]]
    changes = from_bytes(to_bytes({"changes": changes}), "test")["changes"]
    apply_difference(leader, changes)
    assert leader["normalizer"]["mean"].item() == 2.0
    assert leader["groups"][0]["count"] == 8
    assert difference(leader, digests(mine)) == []


def test_nan_equals_itself_and_zeros_of_both_signs_differ() -> None:
    assert difference({"x": torch.tensor([float("nan")])}, digests({"x": torch.tensor([float("nan")])})) == []
    assert len(difference({"x": torch.tensor([-0.0])}, digests({"x": torch.tensor([0.0])}))) == 1


def test_a_copy_on_the_host_does_not_follow_what_training_does_next() -> None:
    weights, large = torch.ones(3), torch.zeros(100_000)
    state = {"weights": weights, "groups": [{"view": large[:3]}], "count": 3}
    copy = to_host(state)
    weights.add_(1.0)
    large.fill_(7.0)
    assert copy["weights"].tolist() == [1.0] * 3
    assert copy["groups"][0]["view"].tolist() == [0.0] * 3
    assert copy["groups"][0]["view"].untyped_storage().nbytes() == 12
    with pytest.raises(TypeError, match="PosixPath"):
        to_host({"path": Path("x")})
