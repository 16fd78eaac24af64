"""Weights & Biases, when a project is configured."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from hpclab.errors import ConfigError
from hpclab.metrics.record import Record
from hpclab.run_folder import write_atomic


class WandbSink:
    """Logs every number of an iteration; later attempts continue the W&B run, whose id is kept in the run folder."""

    def __init__(self, folder: Path, *, project: str, name: str, config: dict[str, Any]) -> None:
        """Start or resume the W&B run.

        Args:
            folder: the run's metrics folder.
            project: W&B project.
            name: name shown for the run.
            config: the resolved configuration.

        Raises:
            ConfigError: the package is not installed, or W&B cannot be reached or does not know the user.
        """
        try:
            wandb = importlib.import_module("wandb")
        except ModuleNotFoundError:
            raise ConfigError(
                "metrics.wandb_project is set but wandb is not installed; pip install 'hpclab[wandb]', or leave it out"
            ) from None
        folder.mkdir(parents=True, exist_ok=True)
        id_file = folder / "wandb_id"
        run_id = id_file.read_text().strip() if id_file.exists() else None
        try:
            self._run: Any = wandb.init(
                project=project, name=name, id=run_id, resume="allow", dir=str(folder), config=config
            )
        except wandb.Error as error:
            raise ConfigError(
                f"metrics.wandb_project: W&B cannot be used here: {' '.join(str(error).split())}; `wandb login`, or "
                "WANDB_MODE=offline and `wandb sync` afterwards, or leave it out"
            ) from error
        self._run.define_metric("iteration")
        self._run.define_metric("*", step_metric="iteration")
        if run_id is None:
            write_atomic(id_file, f"{self._run.id}\n")

    def write(self, record: Record) -> None:
        self._run.log({"iteration": record.iteration, "env_steps": record.env_steps, **record.values})

    def close(self) -> None:
        self._run.finish()
