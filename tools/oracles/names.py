"""The names that recordings give to parameters and buffers, in ours."""

from __future__ import annotations

_BUFFERS = {"_mean": "mean", "_var": "var", "_std": "std", "count": "count"}


def our_name(recorded: str) -> str:
    """Translate a parameter's or buffer's recorded name to ours."""
    head, _, leaf = recorded.rpartition(".")
    if head == "obs_normalizer":
        return f"normalizer.{_BUFFERS[leaf]}"
    return "distribution.std_param" if head == "distribution" else recorded
