"""Collectives over gloo ranks, and the identity of one rank."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

from hpclab.distributed.collectives import Collectives, process_group
from tests.distributed.ranks import TestContext, run_on_ranks


def use_everything(collectives):
    rank = collectives.rank
    return {
        "sum": collectives.all_reduce_sum(torch.tensor([1.0, rank])),
        "max": collectives.all_reduce_max(torch.tensor([-rank, rank])),
        "broadcast": collectives.broadcast(torch.tensor([rank]), source=collectives.world_size - 1),
        "all_gather": collectives.all_gather(torch.tensor([[rank, 5]])),
        "objects": collectives.gather_objects({"rank": rank}),
        "barrier": collectives.barrier(),
        "counts": dict(collectives.counts),
    }


@pytest.mark.distributed
def test_every_collective_on_three_ranks():
    for result in run_on_ranks(use_everything, 3):
        assert result["sum"].tolist() == [3.0, 3.0]
        assert result["max"].tolist() == [0, 2]
        assert result["broadcast"].tolist() == [2]
        assert result["all_gather"].tolist() == [[[0, 5]], [[1, 5]], [[2, 5]]]
        assert result["objects"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert result["counts"] == {"all_reduce": 2, "broadcast": 1, "all_gather": 1, "objects": 1, "barrier": 1}


def test_one_rank_is_the_identity_and_counts_nothing():
    result = use_everything(Collectives())
    assert result["sum"].tolist() == [1.0, 0.0]
    assert result["max"].tolist() == [0, 0]
    assert result["broadcast"].tolist() == [0]
    assert result["all_gather"].tolist() == [[[0, 5]]]
    assert result["objects"] == [{"rank": 0}]
    assert result["counts"] == {}


def test_reductions_are_in_place():
    tensor = torch.ones(2)
    assert Collectives().all_reduce_sum(tensor) is tensor


def test_one_rank_needs_no_process_group():
    with process_group(TestContext(0, 1, "", 0), device=torch.device("cpu"), timeout_s=1.0) as collectives:
        assert collectives.world_size == 1
        assert not dist.is_initialized()


@pytest.mark.distributed
def test_the_process_group_is_left_also_after_an_error():
    def enter_and_fail(context):
        outcome = []
        try:
            with process_group(context, device=torch.device("cpu"), timeout_s=30.0):
                outcome.append(dist.get_backend())
                raise KeyError
        except KeyError:
            outcome.append(dist.is_initialized())
        return outcome

    assert run_on_ranks(enter_and_fail, 2, join_group=False) == [["gloo", False]] * 2


@pytest.mark.distributed
def test_a_collective_that_a_rank_never_enters_fails_within_the_timeout():
    def wait_for_nobody(context):
        with process_group(context, device=torch.device("cpu"), timeout_s=2.0) as collectives:
            if context.rank == 1:
                time.sleep(6.0)
                return "left"
            try:
                collectives.all_reduce_sum(torch.ones(1))
            except RuntimeError as error:
                return str(error)

    first, second = run_on_ranks(wait_for_nobody, 2, join_group=False)
    assert "imed out" in first or "timeout" in first.lower()
    assert second == "left"
