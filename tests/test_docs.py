"""The documentation against the program: every command and option is in docs/commands.md, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hpclab.cli import app
from hpclab.config.schema import RunConfig
from hpclab.config.tasks import task_names
from hpclab.config.yaml_file import parse_yaml

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LEARNING = ROOT / "docs" / "learning.md"
SECTIONS = {
    section.partition("\n")[0].strip(): section
    for section in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("\n## ")[1:]
}


def commands(command: Any, name: str = "hpclab") -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with its full name."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from commands(below, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert sorted(SECTIONS) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_names_its_commands_options_and_no_others(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("-")}
    rows = [line.split("|")[1] for line in SECTIONS[name].splitlines() if line.startswith("| `-")]
    documented = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(rows)))
    assert documented == options - {"--help"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_an_example(name: str) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert all(line.startswith(f"{name} ") or line == name for line in block.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", LEARNING.read_text(encoding="utf-8"), re.DOTALL))
def test_settings_for_learning_are_as_shown(block: str) -> None:
    values = parse_yaml(block).values
    config = RunConfig.model_validate({"task": "cartpole-balance"} | values)
    assert config.task in task_names()
