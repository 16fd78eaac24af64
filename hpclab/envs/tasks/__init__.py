"""The tasks: one file each, `task()` its specification; `some_task.py` is called `some-task`."""

from __future__ import annotations

import importlib

from hpclab.config.tasks import task_names
from hpclab.envs.spec import TaskSpec
from hpclab.errors import ConfigError


def load_task(name: str) -> TaskSpec:
    """Return the specification of the task called `name`.

    Raises:
        ConfigError: there is no such task.
    """
    known = task_names()
    if name not in known:
        raise ConfigError(f"task: there is no task {name!r}; there are {', '.join(known)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    spec: TaskSpec = module.task()
    return spec
