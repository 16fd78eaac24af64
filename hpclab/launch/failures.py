"""Which rank failed first, from the error files that failing ranks leave."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hpclab.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class RankError:
    """What a rank wrote before it left."""

    rank: int
    host: str
    time: float
    iteration: int | None
    error: str
    traceback: str
    in_collective: bool
    """It failed while it waited for other ranks: most likely because another one had failed."""

    def __str__(self) -> str:
        where = f" at iteration {self.iteration}" if self.iteration is not None else ""
        return f"rank {self.rank} on {self.host} failed{where}: {self.error}"


def first_error(run: RunFolder, attempt: int) -> RankError | None:
    """Return the error of the rank that failed first; None when no rank could write one (killed, out of memory)."""
    errors = []
    for path in run.logs(attempt).glob("error-*.json"):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            errors.append(
                RankError(
                    rank=int(record["rank"]),
                    host=str(record["host"]),
                    time=float(record["time"]),
                    iteration=record.get("iteration"),
                    error=str(record["error"]),
                    traceback=str(record.get("traceback", "")),
                    in_collective=bool(record.get("in_collective", False)),
                )
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written by a rank that was killed
    return min(errors, key=lambda error: (error.in_collective, error.time), default=None)


def describe(run: RunFolder, attempt: int, error: Exception) -> str:
    """Return one line on why a launch failed: the rank that failed first, else what torchrunx says, and its log."""
    first = first_error(run, attempt)
    if first is not None:
        return f"{first}; log: {run.rank_log(attempt, first.rank)}"
    words = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {words[:300]}; log: {run.launcher_log(attempt)}"
