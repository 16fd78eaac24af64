"""Options of sbatch that a profile passes on as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_OWN = {
    "nodes": "launch.num_nodes",
    "gpus-per-node": "launch.gpus_per_node",
    "gpus": "launch.gpus_per_node",
    "cpus-per-task": "slurm.cpus_per_worker",
    "mem": "slurm.memory",
    "signal": "slurm.signal_lead_s",
    "job-name": "run.name",
    "array": "--sweep",
} | {
    name.replace("_", "-"): f"slurm.{name}"
    for name in (
        "partition", "account", "qos", "constraint", "reservation", "exclude", "gres", "time", "mail_user", "mail_type",
    )
}  # fmt: skip
_FIXED = ("ntasks", "ntasks-per-node", "gpus-per-task", "output", "error", "open-mode", "wrap", "parsable", "test-only")


def parse_sbatch_options(options: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """Return options by their long names, as sbatch spells them; `slurm_NAME` and `a_b` are read too.

    Raises:
        ValueError: no name of an option, one that has a setting of its own, or one that must stay as it is.
    """
    parsed: dict[str, str | int | bool] = {}
    for given, value in options.items():
        name = given.removeprefix("slurm_").replace("_", "-")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{given!r} is no long option of sbatch, without dashes (e.g. nice)")
        if name in _OWN:
            raise ValueError(f"{given} has a setting of its own: {_OWN[name]}")
        if name in _FIXED:
            raise ValueError(f"{given} cannot be set: each node runs one task, which starts its workers")
        if isinstance(value, str) and not value.isprintable():
            raise ValueError(f"{given} must be one line of text")
        parsed[name] = value
    return parsed
