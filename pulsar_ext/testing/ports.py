"""Free ports on the loopback, where neither a client that reconnects nor another test run takes them meanwhile."""

from __future__ import annotations

import functools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["free_port", "is_free"]

# Below the range that systems take for outgoing connections: there, a client that reconnects to a broker that is down
# can connect to itself, and then holds the port for ever.
_PORTS: Final = range(15_000, 32_000)
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
    """Return whether nothing listens on the port of the loopback.

    Raises:
        BrokerStartError: it is not a port number.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OverflowError:
            raise BrokerStartError(f"{port} is not a port: it must be between 1 and 65535") from None
        except OSError:
            return False
    return True


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
