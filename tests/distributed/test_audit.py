"""Fingerprints tell any two states apart, and the comparison names what differs and where."""

import itertools
from typing import Any

import pytest
import torch

from hpclab.distributed.audit import compare, fingerprints
from hpclab.distributed.collectives import Collectives
from tests.distributed.ranks import run_on_ranks

CPU = torch.device("cpu")


def word(leaf: object) -> int:
    return int(fingerprints({"leaf": leaf}, CPU)[0])


def test_any_single_change_shows() -> None:
    base = torch.arange(8, dtype=torch.float32)
    swapped, flipped, moved = base.clone(), base.clone(), torch.roll(base, 1)
    swapped[[2, 5]] = base[[5, 2]]
    flipped.view(torch.int32)[3] ^= 1
    variants: list[Any] = [base, swapped, flipped, moved, -base, base.double(), base.reshape(2, 4), base[:7]]
    variants += [torch.zeros(8), torch.zeros(9), -torch.zeros(8), torch.zeros(8, dtype=torch.int32)]
    variants += [torch.tensor(True), torch.tensor(False), torch.tensor(1), 1, True, 1.0, "1", None]
    words = [word(variant) for variant in variants]
    for (i, a), (j, b) in itertools.combinations(enumerate(words), 2):
        assert a != b, f"{variants[i]} and {variants[j]} look alike"
    assert word(base.clone()) == words[0]
    assert word(torch.stack([base, base], dim=1)[:, 0]) == words[0], "memory layout does not count"


def test_opposite_changes_do_not_cancel() -> None:
    base = torch.zeros(1000, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    words = {word(base)}
    for _ in range(2000):
        changed = base.clone()
        i, j = torch.randperm(1000, generator=generator)[:2].tolist()
        amount = int(torch.randint(1, 1 << 40, (), generator=generator))
        changed[i] += amount
        changed[j] -= amount
        words.add(word(changed))
    assert len(words) == 2001


def test_the_state_itself_is_not_touched() -> None:
    state = {"long": torch.arange(5), "float": torch.ones(3), "bool": torch.tensor([True, False])}
    before = {name: tensor.clone() for name, tensor in state.items()}
    fingerprints(state, CPU)
    assert all(torch.equal(state[name], before[name]) for name in state)


def compared(collectives: Collectives, changed: dict[int, float]) -> str | None:
    weights = torch.zeros(10)
    weights[4] = changed.get(collectives.rank, 0.0)
    state = {"actor": {"bias": torch.ones(2), "weight": weights}, "rate": 1e-3, "steps": len(changed)}
    found = compare(state, collectives, CPU)
    assert collectives.counts["all_gather"] == 1
    return None if found is None else str(found)


@pytest.mark.distributed
def test_three_ranks_agree_on_who_differs() -> None:
    assert run_on_ranks(compared, 3, {}) == [None] * 3
    prefix = "training state differs between ranks: actor/weight, on "
    assert run_on_ranks(compared, 3, {1: 1e-30}) == [f"{prefix}rank 1 of 3"] * 3
    assert run_on_ranks(compared, 3, {0: 1.0}) == [f"{prefix}rank 0 of 3"] * 3
    assert run_on_ranks(compared, 3, {1: 1.0, 2: 2.0}) == [f"{prefix}ranks 1, 2 of 3"] * 3
