"""The layout of a sweep's folder, and the record of its members."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpclab.errors import ConfigError
from hpclab.run_folder import RunFolder, write_atomic


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """Where a sweep lives: its members' runs, and what they share.

    <sweep>/sweep.json  code/  submitit/  <name>-000/  <name>-001/ ...
    """

    path: Path

    @property
    def record(self) -> Path:
        """sweep.json: the members, and the job of each."""
        return self.path / "sweep.json"

    @property
    def shared(self) -> RunFolder:
        """What the members share lies where a run by itself has it: code/ and submitit/."""
        return RunFolder(self.path)

    def run(self, index: int) -> RunFolder:
        return RunFolder(self.path / f"{self.path.name}-{index:03d}")

    def runs(self) -> list[RunFolder]:
        """Return the runs of the sweep on record; none where there is no sweep."""
        return [RunFolder(self.path / member["run"]) for member in self._read()] if self.record.exists() else []

    def values(self) -> list[dict[str, Any]]:
        """Return the settings that tell the members apart, in the order of their indices."""
        return [member["values"] for member in self._read()]

    def write(self, values: Mapping[int, Mapping[str, Any]], jobs: Mapping[int, str]) -> None:
        """Record members; what is on record of others stays, and the job of one that has no new job.

        Args:
            values: settings of each, by index.
            jobs: id of the job of each that was submitted.
        """
        entries = dict(enumerate(self._read())) if self.record.exists() else {}
        for index, own in values.items():
            job = jobs.get(index, entries.get(index, {}).get("job_id"))
            entries[index] = {"run": self.run(index).name, "values": dict(own), "job_id": job}
        members = [entries[index] for index in sorted(entries)]
        write_atomic(self.record, json.dumps({"name": self.path.name, "members": members}, indent=1) + "\n")

    def check(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Check that the folder is free, or holds these very members.

        Raises:
            ConfigError: it holds a run, or another sweep.
        """
        if self.shared.manifest.exists():
            raise ConfigError(f"{self.path}: holds a run, so it cannot hold a sweep; choose another run.name")
        if self.record.exists() and self.values() != list(values):
            raise ConfigError(f"{self.path}: holds another sweep; choose another run.name")

    def _read(self) -> list[dict[str, Any]]:
        try:
            members = json.loads(self.record.read_text(encoding="utf-8"))["members"]
            return [
                {"run": str(member["run"]), "values": dict(member["values"]), "job_id": member["job_id"]}
                for member in members
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.record}: cannot be read ({error}); remove it, or choose another run.name"
            ) from error
