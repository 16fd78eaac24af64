"""Save and load the checkpoints of a run, all ranks together and all with the same answer."""

from __future__ import annotations

import hashlib
import logging
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.background import Background
from hpclab.checkpoint.dealing import Dealing, Piece
from hpclab.checkpoint.folder import FileEntry, Manifest
from hpclab.checkpoint.retention import Retention
from hpclab.checkpoint.state import State, from_bytes, shapes, to_bytes, to_host
from hpclab.distributed.collectives import Collectives
from hpclab.errors import CheckpointError
from hpclab.versions import versions

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint, as one rank sees it."""

    name: str
    iteration: int
    shared: State
    shard: State | None
    """This rank's own; None when the run had fewer ranks, or kept only rank 0's."""
    world_size: int
    """Ranks that saved it."""
    exact: bool
    """Every rank of the run finds its shard and none is left over: what follows equals a run without interruption."""
    dealing: Dealing
    """Where each rank's environments come from; each rank keeps its own where the checkpoint is exact."""
    pieces: list[tuple[Piece, State]]
    """This rank's share of them, with the shard that each piece is part of."""


@dataclass(slots=True)
class _Save:
    """A save in flight. Every rank is in the same phase: it changes only when all ranks agree that the last is over."""

    iteration: int
    num_envs: int
    metrics: dict[str, float]
    shapes: dict[str, list[int]] | None
    """Of the tensors in shared.pt; None on all ranks but 0."""
    entries: dict[str, FileEntry]
    job: Background[str | None] | None
    """This rank's work in this phase; its result is what went wrong."""
    publishing: bool = False
    """Whether all files are written and rank 0 gives the folder its name."""

    @property
    def name(self) -> str:
        return disk.folder_name(self.iteration)

    def failure(self) -> str | None:
        """Wait for this rank's work and return what went wrong with it."""
        return None if self.job is None else self.job.result()


class CheckpointStore:
    """The checkpoints of one run, written in the background.

    `begin` copies the state and returns; ranks hand each other `progress` in a collective of their own and call
    `advance` with its sums once an iteration. `finish` waits. All but `progress` are collective, and every rank
    returns or raises alike. The write itself calls no collective.
    """

    def __init__(
        self, checkpoints: Path, collectives: Collectives, *, config_sha256: str, retention: Retention | None = None
    ) -> None:
        self._checkpoints = checkpoints
        self._collectives = collectives
        self._config_sha256 = config_sha256
        self._retention = retention or Retention()
        self._saved: int | None = None
        self._swept = False
        self._save: _Save | None = None

    def save(
        self,
        iteration: int,
        *,
        shared: State | None,
        shard: State | None,
        num_envs: int,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Write `iter-<iteration>` and wait until it is there; see `begin`.

        Raises:
            CheckpointError: some rank could not write, on every rank. Earlier checkpoints are untouched.
        """
        self.begin(iteration, shared=shared, shard=shard, num_envs=num_envs, metrics=metrics)
        self.finish()

    def begin(
        self,
        iteration: int,
        *,
        shared: State | None,
        shard: State | None,
        num_envs: int,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Copy the state off its device and write `iter-<iteration>` in the background, once an iteration.

        Args:
            iteration: iterations done.
            shared: training state, from rank 0; other ranks give None.
            shard: what this rank alone has; None where that is not kept, which rank 0's always is.
            num_envs: environments of this rank.
            metrics: what the last iteration reported, on rank 0.

        Raises:
            CheckpointError: leftovers of an earlier attempt are in the way, or the save before failed.
        """
        self.finish()
        if iteration == self._saved:
            return
        if not self._swept:  # before any rank writes: a rank's new files must not be taken for leftovers
            self._agree(disk.folder_name(iteration), self._sweep())
            self._swept = True
        states = {disk.SHARED_FILE: shared, disk.rank_file(self._collectives.rank): shard}
        copies = {file: to_host(state) for file, state in states.items() if state is not None}
        entries: dict[str, FileEntry] = {}

        def write() -> None:
            # Every rank makes sure of the folder itself: a network file system may show rank 0's only later.
            temporary = self._checkpoints / disk.temporary_name(iteration)
            temporary.mkdir(exist_ok=True)
            while copies:
                file, state = copies.popitem()
                entries[file] = disk.write_file(temporary / file, to_bytes(state))

        names = None if shared is None else shapes(shared)
        numbers = {tag: float(value) for tag, value in (metrics or {}).items() if math.isfinite(value)}
        self._save = _Save(iteration, num_envs, numbers, names, entries, Background(lambda: self._attempt(write)))

    def progress(self) -> dict[str, float]:
        """Return what `advance` needs summed over all ranks: of the same names at every call."""
        job = None if self._save is None else self._save.job
        unfinished = job is not None and not job.done()
        failed = job is not None and not unfinished and job.result() is not None
        return {"checkpoint/unfinished": float(unfinished), "checkpoint/failed": float(failed)}

    def advance(self, sums: Mapping[str, float]) -> int | None:
        """Take the save in flight further where all ranks are ready for it, without waiting for any disk.

        Args:
            sums: `progress` of all ranks, added up.

        Returns:
            The iteration of a checkpoint that is now complete, or None.

        Raises:
            CheckpointError: some rank could not write.
        """
        if self._save is None or sums["checkpoint/unfinished"] > 0:
            return None
        return self._next_phase(failed=sums["checkpoint/failed"] > 0)

    def finish(self) -> int | None:
        """Wait for the save in flight; return its iteration, None where there is none.

        Raises:
            CheckpointError: some rank could not write.
        """
        saved = None
        while self._save is not None:
            saved = self._next_phase(failed=True)  # not known yet, so ask
        return saved

    def _next_phase(self, *, failed: bool) -> int | None:
        save, self._save = self._save, None
        assert save is not None
        if save.publishing:
            if failed:
                self._agree(save.name, save.failure())
            self._saved = save.iteration
            return save.iteration
        failure = save.failure()
        parts = self._collectives.gather_objects((save.entries, save.num_envs, failure))
        self._raise_failures(save.name, [problem for *_, problem in parts])
        save.publishing = True
        save.job = None
        if save.shapes is not None:
            files = {file: entry for written, *_ in parts for file, entry in written.items()}
            manifest = Manifest(
                save.iteration,
                len(parts),
                tuple(count for _, count, _ in parts),
                len(files.keys() - {disk.SHARED_FILE}),
                self._config_sha256,
                versions(),
                save.shapes,
                files,
                save.metrics,
            )
            save.job = Background(lambda: self._attempt(lambda: self._publish(manifest)))
        self._save = save
        return None

    def _publish(self, manifest: Manifest) -> None:
        disk.publish(self._checkpoints, manifest)
        try:
            self._retention.prune(self._checkpoints, manifest.iteration)
        except OSError as error:
            _LOGGER.warning("an old checkpoint could not be removed: %s", error)

    def _sweep(self) -> str | None:
        return self._attempt(lambda: disk.sweep(self._checkpoints)) if self._collectives.rank == 0 else None

    def load_newest(self, num_envs: int) -> Checkpoint | None:
        """Load the newest complete checkpoint that rank 0 finds, None when the run has none.

        Args:
            num_envs: environments of this rank; where ranks or their environments are others than those that saved, the
                saved ones are dealt anew.

        Raises:
            CheckpointError: no checkpoint of the run is complete, or a rank cannot read what rank 0 chose.
        """
        found = self._collectives.gather_objects(self._choose() if self._collectives.rank == 0 else None)[0]
        if isinstance(found, CheckpointError):
            raise found
        if found is None:
            return None
        name, manifest = found
        counts = tuple(self._collectives.gather_objects(num_envs))
        rank = self._collectives.rank
        dealing = Dealing(manifest.num_envs[: manifest.num_shards], counts)
        self._saved = manifest.iteration
        pieces = dealing.pieces(rank)
        needed = {piece.source for piece in pieces} | ({rank} if rank < manifest.num_shards else set())
        shards = {source: self._read(name, disk.rank_file(source), manifest) for source in sorted(needed)}
        return Checkpoint(
            name,
            manifest.iteration,
            shared=self._read(name, disk.SHARED_FILE, manifest),
            shard=shards.get(rank),
            world_size=manifest.world_size,
            exact=counts == manifest.num_envs == dealing.saved,
            dealing=dealing,
            pieces=[(piece, shards[piece.source]) for piece in pieces],
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

    def _attempt(self, action: Callable[[], object]) -> str | None:
        """Run `action`; return what went wrong with the disk, in one line."""
        try:
            action()
        except OSError as error:
            return f"rank {self._collectives.rank} on {socket.gethostname()}: {error}"
        return None

    def _agree(self, name: str, failure: str | None) -> None:
        """Raise on every rank when any has a failure."""
        self._raise_failures(name, self._collectives.gather_objects(failure))

    def _raise_failures(self, name: str, by_rank: list[str | None]) -> None:
        failures = [text for text in by_rank if text is not None]
        if failures:
            if self._collectives.rank == 0:
                disk.discard(self._checkpoints, int(name.removeprefix("iter-")))
            raise CheckpointError(
                f"checkpoint {name} could not be written: {'; '.join(failures)}. Earlier checkpoints are kept"
            )
