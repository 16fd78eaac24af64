"""The members of a sweep: one run for each combination of values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpclab.config.yaml_file import parse_yaml
from hpclab.errors import ConfigError
from hpclab.launch.plan import SubmissionPlan
from hpclab.launch.sweep_folder import SweepFolder

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_OF_THE_JOB = ("launch", "slurm", "run.root", "run.name")
_MAX_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting and the values it takes, as they were written."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One run of a sweep."""

    index: int
    overrides: tuple[str, ...]
    """`key.sub=value`"""
    values: dict[str, Any]
    """The same, read."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is submitted of a sweep: one job for each of these members."""

    folder: SweepFolder
    members: tuple[Member, ...]
    plans: tuple[SubmissionPlan, ...]
    size: int
    """Members of the whole sweep."""

    def table(self) -> str:
        """Return a line for each member."""
        width = max(len(plan.run.name) for plan in self.plans)
        lines = [
            f"{plan.run.name:{width}}  {' '.join(member.overrides)}"
            for member, plan in zip(self.members, self.plans, strict=True)
        ]
        return "\n".join([f"sweep of {len(lines)} runs in {self.folder.path}", *lines])

    def manifest_entry(self, member: Member) -> dict[str, Any]:
        """Return what a member's run.json says of the sweep."""
        name = self.folder.path.name
        return {"name": name, "index": member.index, "of": self.size, "values": member.values}


def read_members(arguments: Sequence[str]) -> tuple[Member, ...]:
    """Return the members of `key=v1,v2 other=1..5`: every combination, the last setting varying fastest.

    A setting with one value is an override of all members: it may name anything, and tells no members apart.

    Args:
        arguments: a setting each, with values separated by commas (those inside brackets or quotes belong to one
            value), or a range of integers that includes both ends.

    Raises:
        ConfigError: an argument is wrong, a setting belongs to the job and not to its members, or they are too many.
    """
    axes = [_axis(argument) for argument in arguments]
    twice = next((axis.key for axis in axes if sum(other.key == axis.key for other in axes) > 1), None)
    if twice is not None:
        raise ConfigError(f"--sweep: {twice} is given twice; write its values in one list")
    number = 1
    for axis in axes:
        number *= len(axis.values)
    if number == 1:
        raise ConfigError("--sweep: no setting has several values; write key.sub=value,value or key.sub=1..5")
    if number > _MAX_MEMBERS:
        raise ConfigError(f"--sweep: makes {number} runs, more than {_MAX_MEMBERS}; split it")
    members = []
    for index, values in enumerate(itertools.product(*(axis.values for axis in axes))):
        pairs = list(zip(axes, values, strict=True))
        overrides = tuple(f"{axis.key}={value}" for axis, value in pairs)
        told_apart = {axis.key: parse_yaml(value).values for axis, value in pairs if len(axis.values) > 1}
        members.append(Member(index, overrides, told_apart))
    return tuple(members)


def _axis(argument: str) -> Axis:
    key, equals, text = argument.partition("=")
    if not key or not equals:
        raise ConfigError(f"--sweep {argument}: write key.sub=value,value or key.sub=1..5")
    values = _values(argument, text)
    of_job = next(
        (part for part in _OF_THE_JOB if f"{key}.".startswith(f"{part}.") or part.startswith(f"{key}.")), None
    )
    if of_job is not None and len(values) > 1:
        raise ConfigError(f"--sweep {argument}: all members share {of_job}; sweep settings of the training only")
    return Axis(key, values)


def _values(argument: str, text: str) -> tuple[str, ...]:
    if match := _RANGE.fullmatch(text):
        first, last = int(match[1]), int(match[2])
        if last < first or last - first >= _MAX_MEMBERS:
            raise ConfigError(f"--sweep {argument}: a range goes upwards, to at most {_MAX_MEMBERS} values")
        return tuple(map(str, range(first, last + 1)))
    values = tuple(_split(text))
    if not all(values):
        raise ConfigError(f"--sweep {argument}: has an empty value")
    if len(set(values)) < len(values):
        raise ConfigError(f"--sweep {argument}: has a value twice")
    return values


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if character == "," and depth == 0 and not quote:
            parts.append("")
            continue
        parts[-1] += character
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
    return [part.strip() for part in parts]
