"""What a launcher hands to every rank, and what a rank hands back. No torch here: launchers import this."""

from __future__ import annotations

from dataclasses import dataclass

from hpclab.runners.outcome import Outcome

__all__ = ["Outcome", "WorkerSpec"]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The work of one attempt, the same for every rank."""

    run_folder: str
    """Absolute path; its config.yaml is what is trained."""
    attempt: int
    """0, 1, ...: names the log folder and the stop file."""
    devices: tuple[str, ...]
    """By local rank: "cpu", or one entry for CUDA_VISIBLE_DEVICES ("0", "GPU-8932...", "MIG-...")."""
    console: bool
    """Rank 0 shows its progress on standard output; in any case it writes it to its log."""
    master_addr: str | None = None
    """Rendezvous address to use in place of the environment's MASTER_ADDR."""
    kernel_turn: str | None = None
    """File on this node through which its ranks compile GPU kernels one before the others; see `KernelTurn`."""
