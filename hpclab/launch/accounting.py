"""What Slurm's accounting remembers of a job that the controller has forgotten. Many clusters have none."""

from __future__ import annotations

from hpclab.launch.queue import slurm_command


def final_state(job_id: str, *, timeout_s: float) -> str | None:
    """Return how a job ended (CANCELLED, NODE_FAIL, ...); None when it is not known, or has not ended."""
    text = slurm_command("sacct", "-X", "-n", "-P", "-o", "State", "-j", job_id, timeout_s=timeout_s)
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return None if not lines else parse_state(lines[-1])


def parse_state(text: str) -> str | None:
    """Read a state as sacct prints it, `CANCELLED by 1001` or cut to `CANCELLED+`; None while it has not ended."""
    state = text.split()[0].rstrip("+") if text.split() else ""
    return None if state in ("", "PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED") else state
