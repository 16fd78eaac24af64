"""A bundle made and installed without a network, from an index of tiny wheels."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import platform
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from offline_bundle import __main__ as bundle
from offline_bundle import wheels

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
LIBRARY = random.Random(0).randbytes(250_000)
PYPROJECT = """
[build-system]
requires = ["builder"]
build-backend = "backend"
backend-path = ["."]
[project]
name = "hpclab"
"""
BACKEND = '''
"""Builds the project itself: its metadata, and a wheel that leads to this folder."""
import pathlib, zipfile

METADATA = """Metadata-Version: 2.1
Name: hpclab
Version: 9.9
Requires-Dist: alpha
Requires-Dist: warp-lang
Requires-Dist: pip
Requires-Dist: extra-only; extra == "more"
Provides-Extra: more
"""

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "hpclab-9.9.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "WHEEL").write_text("Wheel-Version: 1.0")
    return info.name

def build_editable(folder, settings=None, metadata=None):
    import builder
    name = "hpclab-9.9-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("hpclab.pth", str(pathlib.Path(__file__).parent))
        for file, text in (
            ("METADATA", METADATA),
            ("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
            ("entry_points.txt", "[console_scripts]\\nhpclab = demo:main\\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"hpclab-9.9.dist-info/{file}", text)
    return name
'''
DEMO = "import alpha, beta, sys\n\ndef main():\n    print('demo', alpha.VALUE, sys.argv[1:])\n"


def make_wheel(
    folder: Path,
    name: str,
    files: dict[str, bytes],
    requires: list[str],
    version: str = "1.0",
    tag: str = "py3-none-any",
) -> None:
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items())
    with zipfile.ZipFile(folder / f"{module}-{version}-{tag}.whl", "w") as wheel:
        for path, data in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}).items():
            wheel.writestr(path, data)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git checkout that is installed as hpclab is, with its own build tools."""
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "demo.py").write_text(DEMO)
    (root / "constraints.txt").write_text("# pins\nalpha==1.0\npip==99.0\nOnly_of.pip==1.0\nwarp-lang==1.0\n")
    (root / "tools").mkdir()
    for name in ("run", "install.sh"):
        shutil.copy(ROOT / "tools" / name, root / "tools" / name)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "Demo"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels; one is for this kind of machine alone."""
    folder = tmp_path_factory.mktemp("index")
    make_wheel(folder, "alpha", {"alpha.py": b"VALUE = 1\n"}, ["beta>=1"])
    make_wheel(folder, "alpha", {"alpha.py": b"VALUE = 2\n"}, ["beta>=1"], version="2.0")
    make_wheel(folder, "beta", {"beta.py": b""}, [])
    make_wheel(folder, "builder", {"builder.py": b""}, [])
    make_wheel(folder, "extra-only", {"extra_only.py": b""}, [])
    make_wheel(folder, "pip", {"pip/__init__.py": b""}, ["only-of-pip"], version="99.0")
    make_wheel(folder, "only-of-pip", {"only_of_pip.py": b""}, [])
    files = {"warp/bin/warp.so": LIBRARY, "warp/bin/warp-clang.so": b"compiler" * 99, "warp/__init__.py": b""}
    make_wheel(folder, "warp-lang", files, [], tag=f"py3-none-manylinux_2_17_{platform.machine()}")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _offline(index: Path) -> Iterator[None]:
    """Let pip find the folder of wheels and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(index))
        yield


@pytest.fixture(scope="module")
def made(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle in parts, without the compiler, for a machine that has pip."""
    output = tmp_path_factory.mktemp("made") / "the bundle"
    options = ["--python", PYTHON, "--machine", platform.machine(), "--exclude", "pip", "--without", "warp-cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "_ROOT", project)
        assert bundle.main([str(output), *options, "--part-size", "100K"]) == 0
    return output


def install(made: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Install where the only index is one that cannot be reached."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "PYTHON": sys.executable}
    variables |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}
    command = ["sh", str(made / "install.sh"), str(folder)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=250)


def test_a_bundle_installs_without_a_network(made: Path, tmp_path: Path) -> None:
    held = sorted(path.name for path in (made / "wheels").iterdir())
    machine = platform.machine()
    warp = f"warp_lang-1.0-py3-none-manylinux_2_17_{machine}.whl"
    packages = ["alpha-1.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl", "builder-1.0-py3-none-any.whl"]
    assert held == [*packages, *(f"{warp}.part-00{number}" for number in range(3))]
    assert (made / "constraints.txt").read_text() == "# pins\nalpha==1.0\nwarp-lang==1.0\n"
    folder = tmp_path / "in stalled"
    done = install(made, folder)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([folder / "tools" / "run", "it"], capture_output=True, text=True, check=True)
    assert ran.stdout == "demo 1 ['it']\n"
    (library,) = folder.glob(".venv/lib/python*/site-packages/warp/bin/*")
    assert (library.name, library.read_bytes()) == ("warp.so", LIBRARY)
    assert not (folder / ".bundle").exists()


def test_a_damaged_file_is_named_and_nothing_is_installed(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "damaged")
    (part,) = (tmp_path / "damaged" / "wheels").glob("*.part-001")
    data = bytearray(part.read_bytes())
    data[1000] ^= 1
    part.write_bytes(data)
    done = install(tmp_path / "damaged", tmp_path / "installed")
    assert done.returncode == 1
    assert part.name in done.stdout
    assert "damaged" in done.stderr
    assert not (tmp_path / "installed").exists()


def test_what_a_wheel_holds_and_lists_stays_the_same_without_a_part(tmp_path: Path) -> None:
    make_wheel(tmp_path, "warp-lang", {"warp/a.py": b"1", "warp/b.so": b"2", "warp/d.py": b"3"}, [])
    wheels.drop(tmp_path, "warp-lang", ["warp/b.so"])
    (path,) = tmp_path.iterdir()
    with zipfile.ZipFile(path) as wheel:
        record = list(csv.reader(wheel.read("warp_lang-1.0.dist-info/RECORD").decode().splitlines()))
        assert [row[0] for row in record] == wheel.namelist()
        assert all(row[1] == f"sha256={digest(wheel.read(row[0]))}" for row in record[:-1])
        assert wheel.read("warp/d.py") == b"3"


def test_what_cannot_be_had_is_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bundle, "_ROOT", project)
    options = ["--python", PYTHON, "--machine", platform.machine()]
    assert bundle.main([str(tmp_path / "out"), *options, "--exclude", "nothing-like-it"]) == 1
    assert "nothing-like-it" in capsys.readouterr().err
    assert bundle.main([str(tmp_path / "out"), *options, "--glibc", "2.12"]) == 1
    assert "warp-lang" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
