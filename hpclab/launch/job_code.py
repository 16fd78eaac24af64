"""Which code the jobs of a run load: a snapshot taken now, the one that run.json names, or the checkout as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpclab.config.schema import RunConfig
from hpclab.launch.plan import SubmissionPlan, from_snapshot, plan_of, with_options
from hpclab.launch.snapshot import Checkout, check_size, find_checkout
from hpclab.run_folder import RunFolder


def with_snapshot(plan: SubmissionPlan, folder: Path | None = None) -> tuple[SubmissionPlan, Checkout | None]:
    """Return the plan of a job that runs from a snapshot, and what to copy for it; nothing is written.

    Args:
        plan: of a job that runs the code as it is.
        folder: where the snapshot goes, when several runs share it; else the run's own folder.

    Raises:
        ConfigError: the code is too big, or cannot be listed.
    """
    folder = folder or plan.run.path
    code = RunFolder(folder).code
    checkout = find_checkout(without=folder.parent)
    if isinstance(checkout, str):
        print(f"code:       no snapshot: {checkout}")
        return plan, None
    check_size(checkout)
    setup = None if plan.setup is None else checkout.frozen_path(plan.setup, code)
    return replace(plan, code=code, setup=setup), checkout


def how_submitted(plan: SubmissionPlan, *, local: bool) -> dict[str, Any]:
    """Return what run.json says of how a run was started, for `hpclab resume`."""
    code = None if plan.code is None else os.path.relpath(plan.code, plan.run.path)
    return {"command": "submit", "local": local, "code": code}


def plan_again(
    run: RunFolder, config: RunConfig, how: Mapping[str, Any], *, num_nodes: int | None, new_code: bool
) -> SubmissionPlan:
    """Return the plan of a run's next job.

    Args:
        run: its folder.
        config: with the changes in it.
        how: what its run.json says of how it was submitted.
        num_nodes: in place of what it had.
        new_code: leave out the snapshot that it was submitted with; the caller takes another.

    Raises:
        ConfigError: it cannot go on so.
    """
    plan = plan_of(run, with_options(config, num_nodes=num_nodes, gpus_per_node=None, workers_per_node=None))
    if new_code or how.get("code") is None:
        return plan
    return from_snapshot(plan, Path(os.path.normpath(run.path / how["code"])))
