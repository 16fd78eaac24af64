from __future__ import annotations

import math
from typing import Any

import pytest

from hpclab.config.yaml_file import Problem, parse_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-.inf", -math.inf),
        ("17", 17),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("0x1f", 31),
        ("0o17", 15),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("!!str 5", "5"),
        ("[1, 2.0, a]", [1, 2.0, "a"]),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    read = parse_yaml(text)
    assert (read.values, type(read.values), read.problems) == (value, type(value), [])


TEXTS = """
yes no on off y N tRue nan inf 12:00:00 1:30 1-12:00:00 2026-01-01 1.2.3 1_000 010 007 00.5 0b11 0x 1e e5 + . = <<
"""


@pytest.mark.parametrize("text", TEXTS.split())
def test_everything_else_is_text(text: str) -> None:
    read = parse_yaml(f"key: {text}")
    assert (read.values, read.problems) == ({"key": text}, [])


def test_every_value_has_its_line() -> None:
    read = parse_yaml("a: 1\nb:\n  c: 2\n\n  d:\n    - x\n    - y\n")
    assert read.lines[("a",)] == 1
    assert read.lines[("b", "c")] == 3
    assert read.lines[("b", "d")] == 5
    assert read.lines[("b", "d", 1)] == 7


def test_a_key_given_twice_is_named_with_both_lines() -> None:
    read = parse_yaml("b:\n  c: 1\n  d: 2\n  c: 3\n")
    assert read.problems == [Problem(4, "b.c: key given twice, first on line 2; remove one")]


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\n b: 2", 2, "not YAML"),
        ("a: [1,\n", 2, "not YAML"),
        ("a:\n\t- 1", 2, "not YAML"),
        ("a: 1\n---\nb: 2", 2, "not YAML"),
        ("a: &x 1\nb: *x", 2, "aliases"),
        ("a: 1\nb: \x00", 2, "'\\x00'"),
        ("a: 1\nb: !!python/name:os.system", 2, "python/name:os.system"),
        ('a: 1\nb: "\\0"', 2, "'\\x00'"),
        ('a: 1\nb: ["\\ud800"]', 2, "'\\ud800'"),
        ('a: "\\U00110000"', 0, "not YAML"),
        ("a: !!float abc", 1, "'abc'"),
        ("1: a", 1, "a key must be text"),
        ("? [a]\n: 1", 1, "a key must be text"),
        ("a: " + "9" * 101, 1, "100 digits"),
        ("[" * 5000, 0, "nested too deeply"),
    ],
)
def test_bad_text_is_one_problem_with_its_line(text: str, line: int, part: str) -> None:
    (problem,) = parse_yaml(text).problems
    assert problem.line == line
    assert part in problem.text
    assert "\n" not in problem.text


TRICKY = [
    "1e3",
    ".5",
    "no",
    "on",
    "12:00:00",
    "010",
    "0o17",
    "",
    "~",
    "null",
    "true",
    "a: b",
    "#x",
    "'",
    '"',
    "é\n",
    "*x",
]


def test_what_is_written_reads_back_equal() -> None:
    values = {"text": TRICKY, "numbers": [1e-5, 0.1, 1e22, 3, -0.0], "none": None, "on": True, "x" * 200: ["y " * 200]}
    assert parse_yaml(write_yaml(values)).values == values
