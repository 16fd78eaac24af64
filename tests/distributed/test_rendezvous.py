from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hpclab.distributed import rendezvous
from hpclab.distributed.collectives import process_group
from hpclab.distributed.rendezvous import listen, meet, serve
from hpclab.errors import LaunchError
from tests.distributed.ranks import TestContext, run_on_ranks

HOST = "127.0.0.1"


def _sum_of_ranks(context: TestContext, path: Path, port: int) -> float:
    place = replace(context, master_port=port)
    with process_group(place, device=torch.device("cpu"), timeout_s=30.0, meeting=path, meeting_s=20.0) as group:
        return float(group.all_reduce_sum(torch.tensor(float(place.rank + 1))))


@pytest.mark.distributed
def test_ranks_meet_although_the_port_they_were_given_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "meeting.json"
    with listen(HOST) as stranger:
        port = stranger.getsockname()[1]
        assert run_on_ranks(_sum_of_ranks, 2, path, port, join_group=False) == [3.0, 3.0]
    assert path.stat().st_mode & 0o077 == 0


def test_a_member_that_never_comes_is_noticed_at_once() -> None:
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 0.1:
            raise LaunchError("n2 is gone")

    with pytest.raises(LaunchError, match="n2 is gone"):
        serve(listen(HOST), HOST, world_size=2, timeout_s=60.0, check=check)
    assert time.monotonic() - began < 10.0


def test_a_file_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "meeting.json"
    path.write_text('{"port": 1}')
    monkeypatch.setattr(rendezvous.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(LaunchError, match="somebody else wrote it"):
        meet(path, TestContext(1, 2, HOST, 0), timeout_s=5.0)


def test_a_silent_rank_0_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="has not said within 0 s where the ranks meet"):
        meet(tmp_path / "meeting.json", TestContext(1, 2, HOST, 0), timeout_s=0.1)


def test_the_listener_is_there_before_anybody_is_told(tmp_path: Path) -> None:
    path = tmp_path / "meeting.json"
    stores = []
    other = threading.Thread(target=lambda: stores.append(meet(path, TestContext(1, 2, HOST, 0), timeout_s=20.0)))
    other.start()
    first = meet(path, TestContext(0, 2, HOST, 0), timeout_s=20.0)
    other.join()
    first.set("word", "heard")
    assert stores[0].get("word") == b"heard"
