"""How pytest-xdist deals tests to its workers: by file, but all that share the cluster or the GPU to one worker.

The cluster's tests mostly wait for Slurm: they come first, and the others run beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On workers put what takes long first, so that all of them have work to the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("cluster", "distributed")])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Deal whole files, in the order of collection."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if file.startswith("tests/cluster/"):
                return "the cluster"
            return "the GPU" if file.endswith("_cuda.py") else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)
