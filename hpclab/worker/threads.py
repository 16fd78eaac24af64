"""How torch's OpenMP threads share cores with the simulation's. No torch here: it reads these variables when loaded."""

from __future__ import annotations

from collections.abc import MutableMapping

_SPIN_COUNT = 20_000
"""Some 50 us: longer than between two operations of an update, shorter than a physics step."""


def limit_spinning(variables: MutableMapping[str, str]) -> None:
    """Let a waiting thread spin only briefly, unless the user has said how threads wait.

    GNU OpenMP's default spins for milliseconds on cores that simulation threads want; sleeping at once makes an update
    of small matrices half as slow again.
    """
    if not variables.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        variables["GOMP_SPINCOUNT"] = str(_SPIN_COUNT)
