"""An address of this node that the other nodes of a job reach, and the interface that has it."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import psutil

LOOPBACK = "127.0.0.1"


def reachable_address(own_name: str, others: Sequence[str]) -> str:
    """Return this node's numeric address as the other nodes see it.

    A host's own name often resolves to 127.0.1.1 or ::1 on that host. So ask the kernel which of its addresses it
    would use towards another node, and only without an answer look at what names resolve to.
    """
    if not others:
        return LOOPBACK
    for other in others:
        for family, address in _resolved(other):
            source = _source_towards(family, address)
            if source and not is_loopback(source):
                return source
    own = [address for _, address in _resolved(own_name) if not is_loopback(address)]
    candidates = own or [address for address in _interface_addresses() if not is_loopback(address)]
    return candidates[0] if candidates else LOOPBACK


def interface_of(address: str) -> str | None:
    """Return the name of the interface with this address, for GLOO_SOCKET_IFNAME; None when there is none."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.split("%")[0] == address for entry in entries):
            return name
    return None


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _resolved(name: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    # IPv4 first: torch's rendezvous and gloo are used with it everywhere, and ::1 is often listed first.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(family, str(address[0])) for family, _, _, _, address in found]


def _source_towards(family: socket.AddressFamily, address: str) -> str | None:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # a datagram socket: nothing is sent
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _interface_addresses() -> list[str]:
    entries = (entry for found in psutil.net_if_addrs().values() for entry in found)
    return [entry.address for entry in entries if entry.family == socket.AF_INET]
