"""YAML and `key.sub=value` to a frozen RunConfig, and back. Every problem is reported at once, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from hpclab.config.near_miss import suggest
from hpclab.config.problems import LAST, Origins, Placed, describe, dotted, failure, place, show
from hpclab.config.schema import RunConfig, SlurmSection
from hpclab.config.section import Section
from hpclab.config.tasks import task_names
from hpclab.config.yaml_file import KeyPath, parse_yaml, write_yaml
from hpclab.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

_PROFILES = Path("slurm", "profiles")
_SOURCE_TREE = Path(__file__).parents[2]


def load_config(path: Path, overrides: Sequence[str] = (), *, profile: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the run that a file describes.

    Precedence, weakest first: the schema's defaults, the profile (the keys of `slurm`), the file, `overrides`.

    Args:
        path: a YAML file.
        overrides: `key.sub=value`, the value in YAML.
        profile: what `load_profile` returns.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong; it names all of them.
    """
    from_file, problems, lines = _section(path)
    if from_file is None and not problems:
        problems.append((0, f"{path}: is empty; write at least 'task: NAME'"))
    values = _merged({"slurm": dict(profile)} if profile else {}, from_file or {})
    origins = Origins(str(path), lines)
    for argument in overrides:
        problems += _apply(argument, values, origins)
    if from_file is None:
        raise failure(problems)  # nothing was read: all that is missing in it would only be noise

    config, wrong = _validated(RunConfig, _without_empty_sections(values), origins)
    problems += wrong + _task_problems(values, origins)
    if problems or config is None:
        raise failure(problems)
    return config


def load_profile(name: str) -> dict[str, Any]:
    """Return the keys of `slurm` that a site's profile sets.

    Args:
        name: `NAME` for slurm/profiles/NAME.yaml in the project of the working folder or else beside this package;
            or the path of a YAML file.

    Raises:
        ConfigError: no such profile, or a key or value in it is wrong.
    """
    path = _profile_path(name)
    values, problems, lines = _section(path)
    section, wrong = _validated(SlurmSection, values or {}, Origins(str(path), lines))
    if section is None or problems:
        raise failure(problems + wrong)
    return section.model_dump(exclude_unset=True)


def dump_config(config: RunConfig) -> str:
    """Return a run as YAML, with every setting, that `load_config` reads back equal."""
    return write_yaml(config.model_dump(mode="json"))


def _section(path: Path) -> tuple[dict[str, Any] | None, list[Placed], dict[KeyPath, int]]:
    """Return a file's keys (None when it has none), what is wrong with its text, and the line of each key."""
    document = parse_yaml(_text(path))
    problems = [(found.line, _at(path, found.line, found.text)) for found in document.problems]
    if isinstance(document.values, dict):
        return document.values, problems, document.lines
    if document.values is not None:
        problems.append((1, f"{path}: must be a section of keys, is {show(document.values)}"))
    return None, problems, {}


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file{_similar_files(path)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name a YAML file{_similar_files(path / 'config')}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


def _similar_files(path: Path) -> str:
    folder = path.parent
    files = [file for pattern in ("*.y*ml", "configs/*.y*ml") for file in folder.glob(pattern) if file.is_file()]
    return f"; {suggest(path.name, [str(file.relative_to(folder)) for file in files], kind='configs')}" if files else ""


def _at(path: Path, line: int, text: str) -> str:
    return f"{path}:{line}: {text}" if line else f"{path}: {text}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with what `over` sets; an empty section in `over` sets nothing."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and (value is None or isinstance(value, dict)):
            merged[key] = _merged(old, value or {})
        else:
            merged[key] = _merged({}, value) if isinstance(value, dict) else value
    return merged


def _apply(argument: str, values: dict[str, Any], origins: Origins) -> list[Placed]:
    """Set in `values` what one `key.sub=value` says, and return what is wrong with the argument itself."""
    shown = " ".join(argument.split())
    shown = shown if len(shown) <= 120 else shown[:117] + "..."
    key, equals, text = argument.partition("=")
    parts = tuple(key.split("."))
    if not equals or not all(parts):
        return [(LAST, f"command line: {shown}: is not an override; write key.sub=value")]
    document = parse_yaml(text)
    if document.problems:
        return [(LAST, f"command line: {shown}: {problem.text}") for problem in document.problems]
    for path, value in _leaves(parts, document.values):
        section = values
        for depth, part in enumerate(path[:-1], start=1):
            if section.get(part) is None:
                section[part] = {}
            section = section[part]
            if not isinstance(section, dict):
                return [
                    (LAST, f"command line: {shown}: {dotted(path[:depth])} is {show(section)}, not a section of keys")
                ]
        section[path[-1]] = value
        origins.set_argument(path, shown)
    return []


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves((*path, key), inner)


def _without_empty_sections(values: dict[str, Any]) -> dict[str, Any]:
    fields = RunConfig.model_fields
    sections = {name for name, info in fields.items() if isinstance(info.default, Section)}
    return {key: value for key, value in values.items() if value is not None or key not in sections}


def _validated(model: type[Model], values: dict[str, Any], origins: Origins) -> tuple[Model | None, list[Placed]]:
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        return None, describe(error.errors(include_url=False), model, values, origins)


def _task_problems(values: dict[str, Any], origins: Origins) -> list[Placed]:
    task, known = values.get("task"), task_names()
    if not isinstance(task, str) or task in known:
        return []  # a missing one, or one that is not text, is the schema's finding
    return [place(origins, ("task",), f"unknown task {task!r}; {suggest(task, known, kind='tasks')}")]


def _profile_path(name: str) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    working = Path.cwd()
    project = next((folder for folder in (working, *working.parents) if (folder / _PROFILES).is_dir()), _SOURCE_TREE)
    folders = [folder / _PROFILES for folder in dict.fromkeys((project, _SOURCE_TREE)) if (folder / _PROFILES).is_dir()]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    if not folders:
        raise ConfigError(f"--profile {name}: there is no folder {_PROFILES} at or above {working}; give a file's path")
    names = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    where = " or ".join(map(str, folders))
    raise ConfigError(f"--profile {name}: no {name}.yaml in {where}; profiles there: {', '.join(names) or 'none'}")
