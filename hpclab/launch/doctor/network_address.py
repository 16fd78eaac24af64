"""The address by which other nodes reach this one, and what its own name says instead."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from hpclab.launch.doctor.finding import Finding, error, ok, warning
from hpclab.launch.network import interface_of, is_loopback, reachable_address

_ELSEWHERE = "192.0.2.1"
"""An address that nobody has (RFC 5737): the kernel names the way out, and nothing is sent."""


def check_network(controller: str | None) -> Iterator[Finding]:
    """Check this machine's address.

    Args:
        controller: the host of Slurm's controller; None without Slurm.
    """
    name = socket.gethostname()
    address = reachable_address(name, [controller or _ELSEWHERE])
    interface = interface_of(address)
    if is_loopback(address):
        text = f"{name} has only the address {address}, which no other machine reaches"
        if controller is None:
            yield ok("address", f"{text}; runs on this machine need no other")
        else:
            yield error("address", text, "bring up a network interface that the nodes reach")
    elif interface is None:
        yield warning("address", f"{address}, but no interface has it", "set GLOO_SOCKET_IFNAME in slurm/setup.sh")
    else:
        yield ok("address", f"{address} on {interface}")
    yield _own_name(name, address)


def _own_name(name: str, address: str) -> Finding:
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return ok("own name", f"{name} is no known address; hpclab uses {address}")
    found = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
    if is_loopback(found[0]):
        return ok("own name", f"{name} resolves to {', '.join(found)} first; hpclab uses {address} instead")
    return ok("own name", f"{name} is {', '.join(found)}")
