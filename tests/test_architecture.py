"""The rules that keep the package's parts apart, checked on its source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "hpclab"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    {"errors", "run_folder", "versions"},
    {"config"},
    {"distributed", "envs", "models", "storage"},
    {"algorithms", "checkpoint", "metrics"},
    {"runners", "export"},
    {"worker"},
    {"launch"},
    {"cli"},
    {"__main__"},
)
HEAVY = {"torch", "numpy", "mujoco", "mujoco_warp", "warp", "torchrunx", "tensorboard", "wandb", "onnx", "onnxruntime"}
CONFIG = str(ROOT / "configs" / "g1.yaml")
SIMULATORS = {"mujoco", "mujoco_warp", "warp"}
COMMANDS = ("submit", "resume", "status", "logs", "cancel", "doctor.command")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path, *, module_level: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports; names imported from a package count as its modules if they are."""
    nodes = ast.parse(path.read_text()).body
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (module if is_module(module) else str(node.module) for module in modules)
        elif module_level and (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)):
            continue
        nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def loaded_by(module: str) -> set[str]:
    """Return all that importing one of our modules imports, statically."""
    found, waiting = set(), [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting.append(name.rpartition(".")[0] or name)
        path = ROOT.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name.split(".")[0] == "hpclab" and file.is_file():
            waiting += imports(file, module_level=True)
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    own = part_of(name_of(path))
    if not own:
        return  # hpclab/__init__.py
    layer = next(number for number, parts in enumerate(LAYERS) if own in parts)
    allowed = set().union(*LAYERS[: layer + 1]) | {""}
    wrong = [name for name in imports(path) if name.split(".")[0] == "hpclab" and part_of(name) not in allowed]
    assert not wrong, f"{name_of(path)} is below {wrong}"


def test_parts_of_one_layer_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        used = {part_of(name) for name in imports(path) if name.startswith("hpclab.")}
        graph.setdefault(part_of(name_of(path)), set()).update(used)
    for part, used in graph.items():
        used.discard(part)
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_files_of_launch_do_not_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): set(imports(path)) for path in MODULES if part_of(name_of(path)) == "launch"}
    graph["hpclab.launch.node_job"].discard("hpclab.launch.agents")  # a pickled job runs what takes it as its argument
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("path", [path for path in MODULES if part_of(name_of(path)) != "distributed"], ids=name_of)
def test_only_distributed_knows_torch_distributed(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith("torch.distributed")]
    used = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    assert not [name for name in used if name.startswith("torch.distributed")]


@pytest.mark.parametrize("path", [path for path in MODULES if part_of(name_of(path)) == "algorithms"], ids=name_of)
def test_algorithms_know_no_simulator(path: Path) -> None:
    assert not [
        name for name in imports(path) if name.startswith("hpclab.envs.sim") or name.split(".")[0] in SIMULATORS
    ]


@pytest.mark.parametrize(
    "module",
    ["hpclab.cli", "hpclab.errors", "hpclab.run_folder"]
    + [name_of(path) for path in MODULES if part_of(name_of(path)) == "config"]
    + [f"hpclab.launch.{command}" for command in COMMANDS]
    + ["hpclab.export.command"],
)
def test_what_runs_on_a_login_node_imports_nothing_heavy(module: str) -> None:
    assert is_module(module.removesuffix(".__init__"))
    assert not {name for name in loaded_by(module) if name.split(".")[0] in HEAVY}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["tasks"],
        ["status"],
        ["config", "show", CONFIG],
        ["submit", CONFIG, "--nodes", "2", "--print"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_commands_of_a_login_node_load_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "run.json").write_text("{}")  # a run, for `status`
    code = f"""
import sys
from hpclab.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    print(f"\\nended {{end.code}}", sorted(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    ended = done.stdout.splitlines()[-1]
    assert ended.startswith("ended 0"), done.stderr
    assert not {module for module in HEAVY if f"'{module}'" in ended}


@pytest.mark.parametrize(
    "path", [*MODULES, *sorted((ROOT / "tools").rglob("*.py"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    assert path.name not in ("utils.py", "helpers.py")
