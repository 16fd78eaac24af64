"""Strict YAML: the scalars of YAML 1.2, text as keys, each key once, and the line of every value.

PyYAML reads YAML 1.1, where `no` is false, `12:00:00` is 43200, `010` is 8 and `1e-3` is text. Here only `true`/`false`
are booleans, and a number is what it looks like; everything else, also digits behind a zero (`007`), is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]

_NULL, _BOOL, _INT, _FLOAT, _STR = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str"))
_RESOLVERS = (
    (_NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    (_INT, re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z"), list("-+0123456789")),
    (
        _FLOAT,
        re.compile(
            r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)\.[0-9]*|(?:0|[1-9][0-9]*)(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z"
            r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
        ),
        list("-+.0123456789"),
    ),
)
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a YAML text, and where: a line counted from 1, or 0 for the text as a whole."""

    line: int
    text: str


@dataclass(slots=True)
class Document:
    """A YAML text as plain values, with where each was written and what was wrong."""

    values: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's registry

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read; write the value out", problem_mark=mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would take for something else."""


for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def parse_yaml(text: str) -> Document:
    """Read one YAML document. It never raises on bad text: what is wrong is in `problems`."""
    document = Document()
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.values = _construct(node, (), document)
    except yaml.MarkedYAMLError as error:
        document.problems.append(Problem(_line(error.problem_mark), f"not YAML: {_syntax(error)}"))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(Problem(line, f"not YAML: the character {chr(error.character)!r} is not allowed"))
    except ValueError as error:  # "\U00110000"
        document.problems.append(Problem(0, f"not YAML: {error}"))
    except RecursionError:
        document.problems.append(Problem(0, "not a config: nested too deeply"))
    finally:
        if loader is not None:
            loader.dispose()
    return document


def write_yaml(values: dict[str, Any]) -> str:
    """Return plain values as YAML that `parse_yaml` reads back equal, keys in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def _construct(node: yaml.Node, path: KeyPath, document: Document) -> Any:
    document.lines.setdefault(path, _line(node.start_mark))
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        return _construct_mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_construct(item, (*path, index), document) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        try:
            return _scalar(node.tag, node.value)
        except ValueError as error:
            document.problems.append(Problem(_line(node.start_mark), str(error)))
            return None
    document.problems.append(Problem(_line(node.start_mark), f"the tag {node.tag} is not read"))
    return None


def _construct_mapping(node: yaml.MappingNode, path: KeyPath, document: Document) -> dict[str, Any]:
    values: dict[str, Any] = {}
    first_lines: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = _line(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR:
            written = repr(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or section"
            document.problems.append(Problem(line, f"a key must be text, is {written}"))
            continue
        key = key_node.value
        if key in values:
            dotted = ".".join(map(str, (*path, key)))
            document.problems.append(
                Problem(line, f"{dotted}: key given twice, first on line {first_lines[key]}; remove one")
            )
            continue
        first_lines[key] = line
        document.lines[(*path, key)] = line
        values[key] = _construct(value_node, (*path, key), document)
    return values


def _scalar(tag: str, text: str) -> Any:
    """Return a scalar's value.

    Raises:
        ValueError: the text does not fit an explicit tag, the tag is unknown, or an escape ("\\0") makes no character.
    """
    if tag == _STR:
        if match := _NO_CHARACTER.search(text):
            raise ValueError(f"the character {match[0]!r} is not allowed")
        return text
    for resolver_tag, pattern, _ in _RESOLVERS:
        if tag == resolver_tag and pattern.match(text):
            break
    else:
        raise ValueError(f"{text!r} with the tag {tag} is not read")
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag == _FLOAT:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if len(text) > 100:
        raise ValueError("an integer of more than 100 digits")
    return int(text, 0)


def _line(mark: yaml.Mark | None) -> int:
    return 0 if mark is None else mark.line + 1


def _syntax(error: yaml.MarkedYAMLError) -> str:
    return " ".join(part for part in (error.problem, error.context and f"({error.context})") if part).replace("\n", " ")
