"""Free ports on the loopback, where neither a client that reconnects nor another test run takes them meanwhile."""

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

# Below the range that systems take for outgoing connections: there, a client that reconnects to a broker that is down
# can connect to itself, and then holds the port for ever.
_PORTS: Final = range(15_000, 32_000)
_LAST: Final = 65_535
_given: set[int] = set()


def free_port(taken: Container[int] = ()) -> int:
    """Return a port that nothing uses now and that is not among the taken ones.

    It stays this process's own: another process of the same user is not given it as long as this one lives, and this
    one is not given it again unless no other port is free. So a broker that was killed finds its port again.

    Raises:
        BrokerStartError: no port is free.
    """
    # Not the application's random numbers: two processes of one seed would meet at each port.
    for port in sorted(random.SystemRandom().sample(_PORTS, len(_PORTS)), key=_given.__contains__):
        if port not in taken and is_free(port) and _reserve(port):
            _given.add(port)
            return port
    raise BrokerStartError(f"no port between {_PORTS.start} and {_PORTS.stop - 1} is free")


def is_free(port: int) -> bool:
    """Return whether nothing listens on the port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def check_ports(*ports: int | None) -> None:
    """Check the ports that a broker was asked to have; None and 0 stand for any free one.

    Raises:
        InvalidUse: one of them is not a port number, or two are the same.
    """
    asked = [port for port in ports if port]
    for port in asked:
        if not isinstance(port, int) or not 0 < port <= _LAST:
            raise InvalidUse(f"a port must be an int from 1 to {_LAST}, or 0 for any free one, got {port!r}")
    if len(set(asked)) < len(asked):
        raise InvalidUse(f"a broker has a port for clients and another one for admin requests, got {asked[0]} for both")


def _reserve(port: int) -> bool:
    """Keep the port from the user's other processes until this one ends, and return whether none of them has it."""
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
    """Return the open file, always empty, in which a byte is locked for each port, or None where there is none.

    The locks are this process's, not its children's, and end with it, however it ends.
    """
    if os.name != "posix":
        return None
    try:
        path = Path(tempfile.gettempdir()) / f"pulsar-ext-ports-{os.getuid()}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:  # nowhere to write: then a port is as free as it looks
        return None
