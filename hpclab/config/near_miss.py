"""Name the valid name that a wrong one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, valid: Iterable[str], *, kind: str) -> str:
    """Return the end of an error message: the likely names, or else all of them.

    Args:
        name: what was written.
        valid: every name that would be right here.
        kind: what the names are, in the plural ("keys", "tasks").
    """
    names = sorted(valid)
    folded = {candidate.casefold().replace("-", "_"): candidate for candidate in names}
    near = get_close_matches(name.casefold().replace("-", "_"), folded, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(folded[match]) for match in near[:2]) + "?"
    return f"valid {kind}: {', '.join(names)}" if names else f"there are no {kind} here"
