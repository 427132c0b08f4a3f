"""
The user of the program at the other end of a connection, as the kernel knows it.

A program of a user who can read the home's keys could answer prompts itself. A prompt says so, so
this must not depend on the client's own word. Where the kernel can't be asked, such a program is
assumed.

The kernel is asked for the one socket by its four numbers. Its table of all sockets costs
milliseconds, and names a socket by two of them.
"""

import ipaddress
import os
import socket
import struct
from typing import NamedTuple

_ROOT = 0
_SOCK_DIAG = 4  # the netlink family, and its one kind of request and reply
_BY_FAMILY = 20
_REQUEST = 1  # of one socket, not of all
_HEAD = struct.Struct("=IHHII")  # length, kind, flags, number, port
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS = struct.Struct("!HH")
_FOUND = struct.Struct("=BBBB")  # family, state, timer, retransmissions
_FACTS = struct.Struct("=IIII")  # expires, both queues, uid
_ADDRESS_BYTES = 16
_SOCKET_BYTES = _PORTS.size + 2 * _ADDRESS_BYTES + 12  # with the interface and a cookie
_ANY = b"\xff" * 8  # the cookie: whichever socket this is
_REPLY_BYTES = 4096

_Host = ipaddress.IPv4Address | ipaddress.IPv6Address


class _End(NamedTuple):
    """One end of a connection."""

    host: _Host
    port: int


def shares_user(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool:
    """
    Whether the client runs on this machine as our user, or as one that may do everything. `server`
    is our own end of its connection.
    """
    if client is None:
        return False
    theirs = _end(*client)
    if not theirs.host.is_loopback:
        return False
    if server is None or server[1] is None:
        return True
    uid = _uid_of(theirs, _end(server[0], server[1]))
    return uid is None or uid in (os.geteuid(), _ROOT)


def _end(host: str, port: int) -> _End:
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _End(address, port)


def _uid_of(theirs: _End, ours: _End) -> int | None:
    """Return the owner of the socket that has `theirs` as its own end; None if none is known."""
    if theirs.host.version != ours.host.version:
        return None
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.send(_question(theirs, ours))
            return _uid_in(kernel.recv(_REPLY_BYTES), _PORTS.pack(theirs.port, ours.port))
    except OSError:
        return None


def _question(theirs: _End, ours: _End) -> bytes:
    family = socket.AF_INET if theirs.host.version == 4 else socket.AF_INET6  # noqa: PLR2004  IPv4
    asked = (
        _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        + _PORTS.pack(theirs.port, ours.port)
        + theirs.host.packed.ljust(_ADDRESS_BYTES, b"\0")
        + ours.host.packed.ljust(_ADDRESS_BYTES, b"\0")
        + bytes(4)  # on any interface
        + _ANY
    )
    return _HEAD.pack(_HEAD.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked


def _uid_in(reply: bytes, ports: bytes) -> int | None:
    """A socket with other ports is one that listens, and not the end of this connection."""
    start = _HEAD.size + _FOUND.size
    if len(reply) < start + _SOCKET_BYTES + _FACTS.size:
        return None
    if _HEAD.unpack_from(reply)[1] != _BY_FAMILY or reply[start : start + _PORTS.size] != ports:
        return None
    uid: int = _FACTS.unpack_from(reply, start + _SOCKET_BYTES)[3]
    return uid
