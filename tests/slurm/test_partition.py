from __future__ import annotations

import pytest

from hpclab.launch.partition import may_take_later
from tests.slurm.conftest import FakeSlurm

NODES = "gpu n1 idle\\ngpu n2 drained\\ncpu* m1 idle\\ncpu* m2 allocated\\nold* m1 idle"


@pytest.mark.parametrize(
    ("partition", "num_nodes", "expected"),
    [
        ("gpu", 2, True),
        ("gpu", 3, False),
        ("gpu,cpu", 4, True),
        ("cpu", 2, False),
        (None, 2, False),
        ("nope", 1, False),
    ],
)
def test_a_job_can_wait_for_nodes_that_are_out_of_service(
    slurm: FakeSlurm, partition: str | None, num_nodes: int, expected: bool
) -> None:
    slurm.command("sinfo", f"printf '{NODES}\\n'")
    assert may_take_later(partition, num_nodes) is expected


def test_without_an_answer_the_submission_decides(slurm: FakeSlurm) -> None:
    slurm.command("sinfo", "exit 1")
    assert may_take_later("gpu", 2)
