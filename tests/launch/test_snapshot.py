from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.launch import snapshot
from hpclab.launch.snapshot import Checkout, check_size, find_checkout, write_snapshot


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def write(path: Path, text: str = "x\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit."""
    folder = tmp_path / "project"
    write(folder / "hpclab" / "__init__.py")
    write(folder / ".gitignore", "*.pt\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    monkeypatch.setattr(snapshot, "_SOURCE_TREE", folder)
    return folder


def files_in(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return found - {".gitignore", "hpclab/__init__.py"}


def frozen(tree: Path, without: Path | None = None) -> Path:
    checkout = find_checkout(without=without)
    assert isinstance(checkout, Checkout), checkout
    write_snapshot(checkout, tree.parent / "code")
    return tree.parent / "code"


def test_tracked_and_untracked_files_are_copied_and_ignored_ones_are_not(tree: Path) -> None:
    write(tree / "hpclab" / "new.py")
    write(tree / "model.pt")
    write(tree / "gone.py")
    git(tree, "add", "gone.py")
    (tree / "gone.py").unlink()
    assert files_in(frozen(tree)) == {"hpclab/new.py"}


def test_names_that_are_not_plain(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "C")
    names = {"dédé/été.py", "with space/a b.py", "100%.py", 'it\'s "quoted".py', "two\nlines.py"}
    for name in names:
        write(tree / name)
    undecodable = os.fsdecode(b"caf\xe9.py")
    write(tree / undecodable)
    assert files_in(frozen(tree)) == names | {undecodable}


def test_modes_are_kept(tree: Path) -> None:
    write(tree / "tool.sh")
    (tree / "tool.sh").chmod(0o755)
    assert (frozen(tree) / "tool.sh").stat().st_mode & 0o777 == 0o755


def test_links_stay_inside_the_snapshot_or_lead_where_they_led(tree: Path) -> None:
    write(tree / "data" / "a.txt", "old")
    write(tree / "weights.pt", "ignored")
    write(tree.parent / "outside.txt", "outside")
    (tree / "relative").symlink_to("data/a.txt")
    (tree / "absolute").symlink_to(tree / "data" / "a.txt")
    (tree / "folder").symlink_to("data")
    (tree / "to_ignored").symlink_to("weights.pt")
    (tree / "to_outside").symlink_to("../outside.txt")
    (tree / "dangling").symlink_to("nowhere")
    code = frozen(tree)
    (tree / "data" / "a.txt").write_text("edited")
    assert [(code / name).read_text() for name in ("relative", "absolute", "folder/a.txt")] == ["old"] * 3
    assert (code / "to_ignored").read_text() == "ignored"
    assert (code / "to_outside").read_text() == "outside"
    assert (code / "dangling").is_symlink()


def test_submodules_and_repositories_inside_are_copied(tree: Path) -> None:
    other = tree.parent / "other"
    write(other / "sub.py")
    write(other / ".gitignore", "*.log\n")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "one")
    git(tree, "submodule", "add", str(other), "module")
    write(tree / "module" / "untracked.py")
    write(tree / "module" / "a.log")
    shutil.copytree(other, tree / "nested")
    files = files_in(frozen(tree))
    assert {"module/sub.py", "module/untracked.py", "nested/sub.py"} <= files
    assert not any(name.endswith(".log") or "/.git/" in name for name in files)


def test_runs_inside_the_checkout_are_left_out(tree: Path) -> None:
    write(tree / "runs" / "a" / "config.yaml")
    write(tree / "b.py")
    assert files_in(frozen(tree, without=tree / "runs")) == {"b.py"}


def test_a_new_snapshot_replaces_the_old_one_and_what_a_killed_one_left(tree: Path) -> None:
    write(tree / "old.py")
    code = frozen(tree)
    (tree / "old.py").unlink()
    write(tree / "new.py")
    write(code.parent / ".code.new.abc" / "half.py")
    frozen(tree)
    assert files_in(code) == {"new.py"}
    assert [path.name for path in code.parent.glob(".code*")] == []


def test_a_copy_that_fails_leaves_the_old_snapshot(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree / "a.py")
    code = frozen(tree)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(ConfigError, match=r"cannot be copied .* No space left on device"):
        frozen(tree)
    assert files_in(code) == {"a.py"}
    assert [path.name for path in code.parent.glob(".code*")] == []


def test_a_big_checkout_is_refused_with_its_biggest_files(tree: Path) -> None:
    for name, megabytes in {"video.mp4": 150, "b.bin": 60, "c.bin": 20, "d.bin": 10}.items():
        with (tree / name).open("wb") as file:
            file.truncate(megabytes * 1_000_000)
    checkout = find_checkout()
    assert isinstance(checkout, Checkout)
    with pytest.raises(ConfigError) as caught:
        check_size(checkout)
    assert "would take 240 MB" in str(caught.value)
    assert "video.mp4 (150 MB), b.bin (60 MB), c.bin (20 MB). Add" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_package_without_a_checkout_has_no_snapshot(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree / ".gitignore", "venv\n")
    write(tree / "venv" / "hpclab" / "__init__.py")
    monkeypatch.setattr(snapshot, "_SOURCE_TREE", tree / "venv")
    assert find_checkout() == "hpclab is an installed package, not a checkout"
    monkeypatch.setattr(snapshot, "_SOURCE_TREE", tree.parent)
    assert find_checkout() == "hpclab is an installed package, not a checkout"


def test_gits_own_words_when_it_cannot_list(tree: Path) -> None:
    (tree / ".git" / "index").write_text("broken")
    with pytest.raises(ConfigError, match=r"cannot be frozen: .*; --no-snapshot skips it"):
        find_checkout()
