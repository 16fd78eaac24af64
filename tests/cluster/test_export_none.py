"""A cluster whose jobs start without the submitter's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.training import Training

pytestmark = pytest.mark.cluster


def test_export_none(cluster: SlurmCluster, tmp_path: Path) -> None:
    options = ("--workers-per-node", "1", "slurm.extra={export: NONE}")
    training = Training.submit(cluster, tmp_path, *options, iterations=5)
    training.wait_for_end("COMPLETED")
    assert training.iterations == list(range(5))
