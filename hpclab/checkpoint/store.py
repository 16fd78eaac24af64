"""Save and load the checkpoints of a run, all ranks together and all with the same answer."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import platform
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.folder import FileEntry, Manifest
from hpclab.checkpoint.state import State, from_bytes, shapes, to_bytes
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError

_LOGGER = logging.getLogger(__name__)
_VERSIONED = ("hpclab", "torch", "numpy", "mujoco", "mujoco-warp", "warp-lang")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint, as one rank sees it."""

    name: str
    iteration: int
    shared: State
    shard: State | None
    """This rank's own; None when it had another number of environments, or the run fewer ranks."""
    exact: bool
    """Every rank of the run finds its shard and none is left over: what follows equals a run without interruption."""


class CheckpointStore:
    """The checkpoints of one run. `save` and `load_newest` are collective; every rank returns or raises alike."""

    def __init__(
        self, checkpoints: Path, collectives: Collectives, *, config_sha256: str, keep_last: int | None = None
    ) -> None:
        self._checkpoints = checkpoints
        self._collectives = collectives
        self._config_sha256 = config_sha256
        self._keep_last = keep_last
        self._saved: int | None = None

    def save(self, iteration: int, *, shared: State | None, shard: State, num_envs: int) -> None:
        """Write `iter-<iteration>`, once: a second call for the same iteration returns at once.

        Args:
            iteration: iterations done.
            shared: training state, from rank 0; other ranks give None.
            shard: what this rank alone has.
            num_envs: environments of this rank.

        Raises:
            CheckpointError: some rank could not write, on every rank. Earlier checkpoints are untouched.
        """
        if iteration == self._saved:
            return
        name = disk.folder_name(iteration)
        self._together(name, lambda: disk.prepare(self._checkpoints, iteration) if shared is not None else None)
        entries: dict[str, FileEntry] = {}

        def write() -> None:
            # Every rank makes sure of the folder itself: a network file system may show rank 0's only later.
            temporary = self._checkpoints / disk.temporary_name(iteration)
            temporary.mkdir(exist_ok=True)
            for file, state in ((disk.SHARED_FILE, shared), (disk.rank_file(self._collectives.rank), shard)):
                if state is not None:
                    entries[file] = disk.write_file(temporary / file, to_bytes(state))

        self._together(name, write)
        parts = self._collectives.gather_objects((entries, num_envs))

        def publish() -> None:
            if shared is None:
                return
            files = {file: entry for written, _ in parts for file, entry in written.items()}
            counts = tuple(count for _, count in parts)
            manifest = Manifest(iteration, len(parts), counts, self._config_sha256, _versions(), shapes(shared), files)
            disk.publish(self._checkpoints, manifest)

        self._together(name, publish)
        self._saved = iteration
        if shared is not None and self._keep_last is not None:
            try:
                disk.prune(self._checkpoints, self._keep_last)
            except OSError as error:
                _LOGGER.warning("an old checkpoint could not be removed: %s", error)

    def load_newest(self, num_envs: int) -> Checkpoint | None:
        """Load the newest complete checkpoint that rank 0 finds, None when the run has none.

        Args:
            num_envs: environments of this rank; a shard of as many is loaded.

        Raises:
            CheckpointError: no checkpoint of the run is complete, or a rank cannot read what rank 0 chose.
        """
        found = self._collectives.gather_objects(self._choose() if self._collectives.rank == 0 else None)[0]
        if isinstance(found, CheckpointError):
            raise found
        if found is None:
            return None
        name, manifest = found
        counts = self._collectives.gather_objects(num_envs)
        rank = self._collectives.rank
        mine = rank < manifest.world_size and manifest.num_envs[rank] == num_envs
        self._saved = manifest.iteration
        return Checkpoint(
            name,
            manifest.iteration,
            shared=self._read(name, disk.SHARED_FILE, manifest),
            shard=self._read(name, disk.rank_file(rank), manifest) if mine else None,
            exact=tuple(counts) == manifest.num_envs,
        )

    def _choose(self) -> tuple[str, Manifest] | CheckpointError | None:
        """Return the newest complete checkpoint, an error if there are only damaged ones."""
        damaged = 0
        try:
            for path, found in disk.newest_complete(self._checkpoints):
                if isinstance(found, Manifest):
                    if found.config_sha256 != self._config_sha256:
                        _LOGGER.info("the configuration has changed since %s was written", path.name)
                    return path.name, found
                _LOGGER.warning("skipping a damaged checkpoint: %s", found)
                damaged += 1
        except OSError as error:
            return CheckpointError(f"{self._checkpoints} cannot be read: {error.strerror}")
        if damaged:
            return CheckpointError(
                f"{self._checkpoints}: all {damaged} checkpoints are damaged (see the log of rank 0); "
                "restore one, or start a new run"
            )
        return None

    def _read(self, name: str, file: str, manifest: Manifest) -> State:
        path = self._checkpoints / name / file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != manifest.files[file].sha256:
            raise CheckpointError(f"{path} reads differently here than on rank 0")
        return from_bytes(data, str(path))

    def _together(self, name: str, action: Callable[[], object]) -> None:
        """Run `action` on every rank; raise on all of them when it failed to write on any."""
        failure: str | None = None
        try:
            action()
        except OSError as error:
            failure = f"rank {self._collectives.rank} on {socket.gethostname()}: {error}"
        failures = [text for text in self._collectives.gather_objects(failure) if text is not None]
        if failures:
            if self._collectives.rank == 0:
                disk.discard(self._checkpoints, int(name.removeprefix("iter-")))
            raise CheckpointError(
                f"checkpoint {name} could not be written: {'; '.join(failures)}. Earlier checkpoints are kept"
            )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _VERSIONED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
