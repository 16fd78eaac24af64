"""One Slurm cluster for all tests of this folder.

HPCLAB_CLUSTER_TRACKING=linuxproc runs them where signals reach every process of a job, not its tasks only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_lab.requirements import lacking
from slurm_lab.settings import Layout

from tests.cluster.slurm import SlurmCluster

TOOL = Path(__file__).parents[2] / "tools" / "slurm_cluster.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a cluster on a machine that cannot hold one, with the reason once per file."""
    needy = [
        item for item in items if Path(__file__).parent in item.path.parents and item.get_closest_marker("cluster")
    ]
    if needy and (problem := lacking()):
        for item in needy:
            item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture(scope="session")
def _session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    state = tmp_path_factory.mktemp("slurm")
    tool = [sys.executable, str(TOOL), "--state", str(state)]
    tracking = os.environ.get("HPCLAB_CLUSTER_TRACKING", "auto")
    # It ends the cluster when its input does: at the end of the tests, and also when this process is killed.
    down = ["sh", "-c", 'cat; exec "$@"', "sh", *tool, "down"]
    with subprocess.Popen(down, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as end:
        up = [*tool, "up", "--nodes", "2", "--cred-expire", "5", "--kill-wait", "15", "--tracking", tracking]
        started = subprocess.run(up, capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr
        yield SlurmCluster(Layout(state))
    assert end.returncode == 0


@pytest.fixture
def cluster(_session_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """A cluster of two nodes without any job; what a test leaves is ended after it."""
    yield _session_cluster
    _session_cluster.cancel_everything()
