"""A list of things to look at, one after another, each with what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Look = Callable[[], tuple[bool, str]]
"""Looks at one thing: whether it is as it should be, and what was found."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table."""

    what: str
    passed: bool
    found: str


def examine_all(looks: Iterable[tuple[str, Look]]) -> Iterator[Check]:
    """Take every look in turn; one that raises has failed, and the others go on."""
    for what, look in looks:
        try:
            passed, found = look()
        except Exception as error:  # whatever goes wrong in a look is what the table has to say
            passed, found = False, f"{type(error).__name__}: {error}"
        yield Check(what, passed, found)
