"""The schema of a run as JSON Schema, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from hpclab.config.schema import RunConfig
from hpclab.config.tasks import task_names


def run_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a config file, with the names of the tasks that exist."""
    schema = RunConfig.model_json_schema()
    schema["properties"]["task"]["enum"] = list(task_names())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
