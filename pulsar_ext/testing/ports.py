"""Free ports on the loopback that neither reconnecting clients nor other test runs take."""

from __future__ import annotations

import functools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import BrokerStartError, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Container

# Below the range of outgoing connections: there, a client that reconnects to a stopped broker can connect to itself,
# and then holds the port forever.
_PORTS: Final = range(15_000, 32_000)
_LAST: Final = 65_535
_reserved_ports: set[int] = set()


def free_port(taken: Container[int] = ()) -> int:
    """Return a free port that is not among the taken ones.

    It is reserved for this process: another process of this user does not get it while this one lives, and this one
    does not get it again unless no other port is free. So a killed broker finds its port again.
    """
    # Not the application's random numbers: two processes with one seed would choose the same ports.
    first = random.SystemRandom().randrange(len(_PORTS))
    ports: list[int] = [*_PORTS[first:], *_PORTS[:first]]
    for port in sorted(ports, key=_reserved_ports.__contains__):
        if port not in taken and is_free(port) and _reserve(port):
            _reserved_ports.add(port)
            return port
    raise BrokerStartError(f"no port between {_PORTS.start} and {_PORTS.stop - 1} is free")


def is_free(port: int) -> bool:
    """Return True if no program listens on a port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def check_ports(*ports: int | None) -> None:
    """Check the requested ports of a broker; None and 0 mean any free one."""
    requested = [port for port in ports if port]
    for port in requested:
        if not isinstance(port, int) or not 0 < port <= _LAST:
            raise InvalidUse(f"a port must be an int from 1 to {_LAST}, or 0 for any free one, got {port!r}")
    if len(set(requested)) < len(requested):
        raise InvalidUse(f"the ports for clients and for admin requests must differ, got {requested[0]} for both")


def _reserve(port: int) -> bool:
    """Reserve a port against the user's other processes until this one ends; return False if one of them has it."""
    if (file := _reservations()) is None:
        return True
    import fcntl  # noqa: PLC0415  # POSIX only

    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _reservations() -> int | None:
    """Return the open, always empty file in which a byte is locked per port, or None if it is not available.

    The locks belong to this process, not to its children, and end with it.
    """
    if os.name != "posix":
        return None
    try:
        path = Path(tempfile.gettempdir()) / f"pulsar-ext-ports-{os.getuid()}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:  # not writable: ports are then not reserved
        return None
