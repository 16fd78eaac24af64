"""What a job is: the callable that submitit pickles and starts once on every node."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpclab.config.schema import Agents
from hpclab.launch.lock import Owner
from hpclab.run_folder import RunFolder

if TYPE_CHECKING:
    from hpclab.worker.spec import Outcome


@dataclass(frozen=True, slots=True)
class NodeJob:
    """One job, the same for all its nodes. It holds no training state: every attempt reads that from the run folder."""

    run_folder: str
    """Absolute path."""
    num_nodes: int
    workers_per_node: int
    use_gpus: bool
    walltime_min: int
    signal_lead_s: int
    torchrunx_logs: str
    """torchrunx's own log folder; "" for none."""
    devices_by_node: tuple[tuple[str, ...], ...] | None = None
    """Devices by node and local rank, where they are known before the job starts: on pseudo-nodes."""
    agents: Agents = "tasks"
    """How the nodes' agents are started; see `SlurmSection.agents`."""
    python: str = ""
    """Shell words that run this package's Python on a node; empty for the interpreter alone."""
    submitter: Owner | None = None
    """The process that started the job. One on pseudo-nodes runs in its foreground, and stops when it is gone; a Slurm
    job takes the run over from it."""

    @property
    def run(self) -> RunFolder:
        return RunFolder(Path(self.run_folder))

    def __call__(self) -> dict[str, Any]:
        """Run this node's part, inside a submitit task; a job that was interrupted never returns."""
        from hpclab.launch.agents import run_node
        from hpclab.launch.node import Node

        outcome: Outcome | None = run_node(self, Node.of_submitit(self.run), through_submitit=True)
        return {} if outcome is None else asdict(outcome)

    def checkpoint(self) -> Any:
        """Return what a requeued job runs, for submitit: the same again."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)
