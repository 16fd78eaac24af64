"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    """What was looked at, in a word or two."""
    level: Level
    """error: a run cannot work as asked. warning: it can, with a drawback."""
    text: str
    action: str = ""
    """What to do about it; empty when it is ok."""


def ok(check: str, text: str) -> Finding:
    return Finding(check, "ok", text)


def warning(check: str, text: str, action: str) -> Finding:
    return Finding(check, "warning", text, action)


def error(check: str, text: str, action: str) -> Finding:
    return Finding(check, "error", text, action)


def not_here(check: str, why: str) -> Finding:
    """Return the finding of a check that has nothing to look at on this machine."""
    return Finding(check, "ok", f"does not apply: {why}")
