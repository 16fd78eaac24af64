from __future__ import annotations

import socket

import pytest

from hpclab.errors import LaunchError
from hpclab.launch import torchrunx_launcher


def nothing() -> None:
    return


def test_commands_go_to_the_handler_and_the_address_is_ours() -> None:
    import torchrunx.launcher as launcher

    names = ("execute_command", "socket", "get_open_port", "LauncherAgentGroup")
    before = [getattr(launcher, name) for name in names]
    given: list[tuple[str, str]] = []
    with torchrunx_launcher._replaced(lambda host, command: given.append((host, command)), "127.0.0.2", nothing):
        assert launcher.execute_command("start", "n2", ssh_config_file=None) == ("", "")
        assert launcher.socket.getfqdn() == "127.0.0.2"
    assert given == [("n2", "start")]
    assert [getattr(launcher, name) for name in names] == before


def test_nobody_can_take_a_port_between_its_choice_and_its_use() -> None:
    import torchrunx.launcher as launcher

    with torchrunx_launcher._replaced(lambda host, command: None, "127.0.0.1", nothing):
        of_group, of_log = launcher.get_open_port(), launcher.get_open_port()
        for port in (of_group, of_log):
            with pytest.raises(OSError, match="Address already in use"), socket.create_server(("127.0.0.1", port)):
                pass


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torchrunx

    monkeypatch.setattr(torchrunx, "__version__", "0.5.0")
    with (
        pytest.raises(LaunchError, match=r"torchrunx 0\.5\.0 is installed.*pip install torchrunx==0\.4\.0"),
        torchrunx_launcher._replaced(lambda host, command: None, "127.0.0.1", nothing),
    ):
        pass
