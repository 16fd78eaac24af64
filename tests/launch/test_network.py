from __future__ import annotations

import socket

import pytest

from hpclab.launch import network


def _names(monkeypatch: pytest.MonkeyPatch, table: dict[str, list[str]]) -> None:
    def getaddrinfo(name: str, *_: object, **__: object) -> list[object]:
        if name not in table:
            raise socket.gaierror(name)
        families = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in table[name]]
        return [(family, 2, 17, "", (a, 0)) for family, a in zip(families, table[name], strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_alone_the_loopback_is_enough() -> None:
    assert network.reachable_address("n1", []) == "127.0.0.1"


def test_the_route_to_another_node_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    _names(monkeypatch, {"n1": ["127.0.1.1"], "n2": ["::1", "10.0.0.2"]})
    monkeypatch.setattr(
        network, "_source_towards", lambda family, address: {"10.0.0.2": "10.0.0.1"}.get(address, "::1")
    )
    assert network.reachable_address("n1", ["n2"]) == "10.0.0.1"


def test_without_a_route_names_and_interfaces_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    _names(monkeypatch, {"n1": ["::1", "127.0.1.1"]})
    monkeypatch.setattr(network, "_interface_addresses", lambda: ["127.0.0.1", "192.168.0.7"])
    assert network.reachable_address("n1", ["nowhere"]) == "192.168.0.7"
    _names(monkeypatch, {"n1": ["127.0.1.1", "10.1.1.1"]})
    assert network.reachable_address("n1", ["nowhere"]) == "10.1.1.1"


def test_the_loopback_has_an_interface() -> None:
    assert network.interface_of("127.0.0.1") in ("lo", "lo0")
    assert network.interface_of("203.0.113.9") is None
