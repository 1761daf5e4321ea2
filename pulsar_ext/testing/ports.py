"""Free ports on the loopback, where a client that reconnects cannot take them."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import BrokerStartError

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["free_port", "is_free"]

# Below the range that systems take for outgoing connections: there, a client that reconnects to a broker that is down
# can connect to itself, and then holds the port for ever.
_PORTS: Final = range(15_000, 32_000)


def free_port(taken: Container[int] = ()) -> int:
    """Return a port that nothing uses now and that is not among the taken ones.

    Raises:
        BrokerStartError: no port is free.
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in taken and is_free(port):
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
