from __future__ import annotations

import platform
from importlib.metadata import version

import pytest

from hpclab import versions


def test_a_record_has_what_is_installed_and_leaves_out_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PACKAGES", ("torch", "no-such-package"))
    found = versions.versions()
    assert list(found) == ["python", "hpclab", "torch"]
    assert (found["python"], found["torch"]) == (platform.python_version(), version("torch"))
    assert versions.installed("no-such-package") is None
