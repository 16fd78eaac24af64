"""Episode sums and totals, worked by hand."""

from __future__ import annotations

import torch

from hpclab.envs.buffers import Buffers
from hpclab.envs.ledger import EpisodeLedger


def test_totals_hold_the_weighted_sums_of_ended_episodes_alone() -> None:
    ledger = EpisodeLedger(Buffers(3, torch.device("cpu")), "rewards", ["a", "b"])
    weight = torch.tensor([0.5, 0.5, 0.25])
    ledger.add(torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]))
    ledger.add(torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))
    ledger.close(torch.tensor([True, False, True]), weight)
    ledger.add(torch.tensor([[5.0, 1.0, 7.0], [5.0, 1.0, 7.0]]))
    ledger.close(torch.tensor([False, True, False]), weight)
    # Environment 0: (2, 10) / 2. Environment 2: (4, 30) / 4. Environment 1, a step later: (4, 21) / 2.
    assert {tag: value.item() for tag, value in ledger.read().items()} == {"a": 4.0, "b": 23.0}
    assert {tag: value.item() for tag, value in ledger.read().items()} == {"a": 0.0, "b": 0.0}
    assert ledger.sums.tolist() == [[5.0, 5.0], [0.0, 0.0], [7.0, 7.0]]
