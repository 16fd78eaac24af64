"""Saved environments go to other ranks in their order, as far as they go."""

import pytest
import torch

from hpclab.checkpoint.dealing import Dealing, Piece, place


@pytest.mark.parametrize(
    ("saved", "now", "expected"),
    [
        ((2, 2), (2, 2), [[Piece(0, 0, 0, 2)], [Piece(1, 0, 0, 2)]]),
        ((2, 2, 2, 2), (2, 2), [[Piece(0, 0, 0, 2)], [Piece(1, 0, 0, 2)]]),
        ((2, 2), (2, 2, 2), [[Piece(0, 0, 0, 2)], [Piece(1, 0, 0, 2)], []]),
        ((2, 2, 2, 2), (8,), [[Piece(0, 0, 0, 2), Piece(1, 0, 2, 2), Piece(2, 0, 4, 2), Piece(3, 0, 6, 2)]]),
        ((4, 3, 3), (5, 5), [[Piece(0, 0, 0, 4), Piece(1, 0, 4, 1)], [Piece(1, 1, 0, 2), Piece(2, 0, 2, 3)]]),
        ((3,), (2, 4), [[Piece(0, 0, 0, 2)], [Piece(0, 2, 0, 1)]]),
    ],
)
def test_pieces(saved, now, expected) -> None:
    dealing = Dealing(saved, now)
    assert [dealing.pieces(rank) for rank in range(len(now))] == expected


def test_every_environment_goes_to_one_place_at_most() -> None:
    for saved, now in (((4, 3, 3), (5, 5)), ((1, 9), (3, 3, 3, 3)), ((5, 5), (2,))):
        dealing = Dealing(saved, now)
        pieces = [(rank, piece) for rank in range(len(now)) for piece in dealing.pieces(rank)]
        sources = [(p.source, p.first + i) for _, p in pieces for i in range(p.count)]
        places = [(rank, p.at + i) for rank, p in pieces for i in range(p.count)]
        assert len(set(sources)) == len(sources) == len(set(places)) == min(sum(saved), sum(now))


def test_the_log_says_what_is_carried_over() -> None:
    assert Dealing((4, 3, 3), (5, 7)).describe(1) == (
        "of its 7 environments here 2 of rank 1's and 3 of rank 2's continue and 2 start anew; "
        "over all ranks 10 continue, 2 start anew, 0 of the checkpoint are left out"
    )
    assert Dealing((2,), (2, 2)).describe(1).startswith("of its 2 environments here none continue and 2 start anew;")


def test_rows_are_placed_and_the_rest_stays() -> None:
    def state(num_envs: int, value: float) -> dict:
        rows = torch.arange(num_envs, dtype=torch.float32)[:, None] + value
        buffers = {"length": rows[:, 0].clone(), "step_count": torch.full((num_envs,), value)}
        return {"task": "t", "num_envs": num_envs, "buffers": buffers, "sim": {"rows": rows, "gravity": torch.ones(3)}}

    target, source = state(5, 100.0), state(4, 0.0)
    place(target, source, Piece(source=1, first=1, at=2, count=3), shared=["step_count"])
    assert target["sim"]["rows"][:, 0].tolist() == [100.0, 101.0, 1.0, 2.0, 3.0]
    assert target["buffers"]["length"].tolist() == [100.0, 101.0, 1.0, 2.0, 3.0]
    assert target["buffers"]["step_count"].tolist() == [100.0] * 5
    assert target["num_envs"] == 5
