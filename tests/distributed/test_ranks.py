"""The tool that the other distributed tests stand on."""

import os
import time

import psutil
import pytest

from tests.distributed.ranks import run_on_ranks

pytestmark = pytest.mark.distributed


def test_results_come_back_by_rank_and_arguments_reach_every_rank():
    offset = 10
    assert run_on_ranks(lambda collectives, scale: collectives.rank * scale + offset, 3, 2) == [10, 12, 14]


def test_a_rank_that_raises_fails_the_call_with_its_traceback_and_leaves_no_process():
    def fail_on_one(collectives):
        if collectives.rank == 1:
            raise ValueError("the reason")
        time.sleep(60)

    with pytest.raises(AssertionError, match=r"rank 1 failed:(.|\n)*the reason"):
        run_on_ranks(fail_on_one, 2)


def test_a_rank_that_dies_fails_the_call():
    with pytest.raises(AssertionError, match="rank 0 died"):
        run_on_ranks(lambda context: os._exit(3), 1, join_group=False)


def test_a_rank_that_hangs_fails_the_call_in_time_and_is_killed(tmp_path):
    def hang(context):
        (tmp_path / f"{context.rank}").write_text(str(os.getpid()))
        time.sleep(600)

    start = time.monotonic()
    with pytest.raises(AssertionError, match=r"no answer within 5 s from rank \[0, 1\]"):
        run_on_ranks(hang, 2, join_group=False, timeout_s=5.0)
    assert time.monotonic() - start < 30
    pids = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
