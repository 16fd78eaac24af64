from __future__ import annotations

import pytest

from hpclab.errors import LaunchError
from hpclab.launch import torchrunx_launcher


def test_commands_go_to_the_handler_and_the_address_is_ours() -> None:
    import torchrunx.launcher as launcher

    before = launcher.execute_command, launcher.socket
    given: list[tuple[str, str]] = []
    with torchrunx_launcher._replaced(lambda host, command: given.append((host, command)), "10.0.0.1"):
        assert launcher.execute_command("start", "n2", ssh_config_file=None) == ("", "")
        assert launcher.socket.getfqdn() == "10.0.0.1"
    assert given == [("n2", "start")]
    assert (launcher.execute_command, launcher.socket) == before


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torchrunx

    monkeypatch.setattr(torchrunx, "__version__", "0.5.0")
    with (
        pytest.raises(LaunchError, match=r"torchrunx 0\.5\.0 is installed.*pip install torchrunx==0\.4\.0"),
        torchrunx_launcher._replaced(lambda host, command: None, "127.0.0.1"),
    ):
        pass
