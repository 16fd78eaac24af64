"""Say what is wrong with a configuration: one line each, with its place, its key and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from hpclab.config.near_miss import suggest
from hpclab.config.yaml_file import KeyPath, parse_yaml
from hpclab.errors import ConfigError

_EXPECTED = {
    "int": "must be an integer",
    "float": "must be a number",
    "finite": "must be a finite number",
    "bool": "must be true or false",
    "string": "must be text",
    "tuple": "must be a list",
    "list": "must be a list",
    "dict": "must be a section of keys",
    "model": "must be a section of keys",
}
_BOUNDS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_BOUND_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
LAST = 10**9
"""The order of what was given on the command line."""

Placed = tuple[int, str]
"""A problem's order (its line in the file; the command line comes after it), and its message."""


@dataclass(slots=True)
class Origins:
    """Where each value was written: a line of a file, or an argument of the command line."""

    file: str
    lines: dict[KeyPath, int] = field(default_factory=dict)
    arguments: dict[KeyPath, str] = field(default_factory=dict)

    def set_argument(self, path: KeyPath, argument: str) -> None:
        """Record that an argument replaced the value at `path` with all that was under it."""
        self.lines = {known: line for known, line in self.lines.items() if known[: len(path)] != path}
        self.arguments = {known: text for known, text in self.arguments.items() if known[: len(path)] != path}
        self.arguments[path] = argument

    def locate(self, path: KeyPath) -> Placed:
        """Return the order among other places, and the place itself as a message begins with it."""
        for length in range(len(path), 0, -1):
            if argument := self.arguments.get(path[:length]):
                return LAST, f"command line: {argument}"
            if line := self.lines.get(path[:length]):
                return line, f"{self.file}:{line}"
            for known, argument in self.arguments.items():
                if known[: len(path)] == path:
                    return LAST, f"command line: {argument}"  # it made a section of what is none
        return 0, self.file


def failure(problems: list[Placed]) -> ConfigError:
    """Return the error that names every problem, one line each, in the order of the file."""
    return ConfigError("\n".join(text for _, text in sorted(problems, key=lambda problem: problem[0])))


def describe(error_details: list[ErrorDetails], root: type[BaseModel], values: Any, origins: Origins) -> list[Placed]:
    """Return one problem for each wrong value."""
    by_path: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error_details:
        by_path.setdefault(_path(details, values), []).append(details)
    return [_line(path, errors, root, values, origins) for path, errors in by_path.items()]


def place(origins: Origins, path: KeyPath, problem: str) -> Placed:
    """Return a problem with the value at `path`."""
    order, location = origins.locate(path)
    key = dotted(path)
    named = not key or location.startswith(f"command line: {key}=")
    return order, f"{location}: {problem}" if named else f"{location}: {key}: {problem}"


def dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def show(value: Any) -> str:
    """Return a value as a message names it, short and on one line."""
    if isinstance(value, str):
        return "the text " + repr(value if len(value) <= 60 else value[:57] + "...")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a section of keys"
    return "a list" if isinstance(value, list | tuple) else repr(value)


def _path(details: ErrorDetails, values: Any) -> KeyPath:
    """Return the keys down to the wrong value, without what pydantic adds for the members of a union."""
    if details["type"] == "inconsistent":
        return tuple(details["ctx"]["key"].split("."))
    loc: KeyPath = details["loc"]
    path: KeyPath = ()
    if details["type"] == "union_tag_invalid":
        return (*loc, "name")
    added = loc[-1:] if details["type"] == "missing" else ()
    for key in loc[: len(loc) - len(added)]:
        inside = isinstance(values, dict) and key in values
        if inside or (isinstance(values, list | tuple) and isinstance(key, int) and key < len(values)):
            values = values[key]
            path = (*path, key)
    return (*path, *added)


def _line(path: KeyPath, errors: list[ErrorDetails], root: type[BaseModel], values: Any, origins: Origins) -> Placed:
    if errors[0]["type"] == "extra_forbidden":
        order, location = origins.locate(path)
        section = "" if not path[:-1] or location.startswith("command line: ") else f"{dotted(path[:-1])}: "
        return order, f"{location}: {section}unknown key {str(path[-1])!r}; {_meant(path, root, values)}"
    if len(errors) == 1:
        return place(origins, path, _problem(errors[0]))
    kinds = " or ".join(_EXPECTED.get(error["type"].partition("_")[0], error["msg"]) for error in errors)
    return place(origins, path, f"{kinds.replace(' or must be ', ' or ')}, is {show(errors[0]['input'])}")


def _problem(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        hint = "; `hpclab tasks` lists what there is" if details["loc"] == ("task",) else ""
        return f"is required but not given{hint}"
    if kind == "inconsistent":
        return details["msg"]
    if kind == "value_error":
        return f"{context['error']} (is {show(value)})"
    if kind in ("literal_error", "union_tag_invalid"):
        names = re.findall(r"'([^']*)'", context["expected" if kind == "literal_error" else "expected_tags"])
        value = value if kind == "literal_error" else value["name"]
        near = suggest(value, names, kind="values") if isinstance(value, str) else ""
        hint = f"; {near}" if near.startswith("did") else ""
        return f"must be {'one of ' if len(names) > 1 else ''}{', '.join(names)}, is {show(value)}{hint}"
    if kind == "too_long":
        return f"must have {context['max_length']} entries, has {context['actual_length']}"
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        return f"must be {_BOUND_WORDS[bound]} {context[bound]:g}, is {show(value)}"
    expected = _EXPECTED.get(kind.partition("_")[0])
    if expected is None:
        return f"{details['msg']}, is {show(value)}"
    return f"{expected}, is {show(value)}{_rewrite(kind.partition('_')[0], value)}"


def _rewrite(expected: str, value: Any) -> str:
    """Return what to write instead where the value is the right one in the wrong type."""
    if expected == "int" and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if expected in ("int", "float") and isinstance(value, str):
        plain = parse_yaml(value.replace("_", "").replace(",", "")).values
        is_number = isinstance(plain, int if expected == "int" else int | float) and not isinstance(plain, bool)
        return f"; write {plain}" if is_number else ""
    if expected == "bool" and isinstance(value, str) and value.lower() in ("yes", "on", "no", "off", "true", "false"):
        return f"; write {'true' if value.lower() in ('yes', 'on', 'true') else 'false'}"
    if expected == "string" and not isinstance(value, dict | list) and value is not None:
        return "; put it in quotes"
    if expected == "tuple" and isinstance(value, int):
        return f"; write [{value}]"
    return ""


def _meant(path: KeyPath, root: type[BaseModel], values: Any) -> str:
    """Name the key that was meant: the same name in another section, a similar one here, or all that are valid."""
    key, section = str(path[-1]), root
    for name in path[:-1]:
        values = values[name]
        section = _chosen(_sections(section.model_fields[str(name)].annotation), values)
    known = [dotted(other) for other in _all_keys(root) if other[-1] == key and other != path]
    if known:
        return f"did you mean {' or '.join(map(repr, known))}?"
    return suggest(key, section.model_fields, kind="keys")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections that a setting may be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections(argument)]


def _chosen(sections: list[type[BaseModel]], values: Any) -> type[BaseModel]:
    """Return the section that the key `name` chooses; the first where it is not given."""
    name = values.get("name") if isinstance(values, dict) else None
    named = [s for s in sections if "name" in s.model_fields and name in get_args(s.model_fields["name"].annotation)]
    return (named or sections)[0]


def _all_keys(model: type[BaseModel], path: KeyPath = ()) -> Iterator[KeyPath]:
    for name, info in model.model_fields.items():
        yield (*path, name)
        for section in _sections(info.annotation):
            yield from _all_keys(section, (*path, name))
