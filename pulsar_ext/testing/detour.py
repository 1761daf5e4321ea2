"""Ways round to the brokers of a cluster, so that each test can have fault proxies of its own before all of them.

What a look-up says leads clients straight to a broker, past any proxy. So a broker listens on one more port for each
detour, and tells whoever comes in there the address of that detour's proxy. Whoever holds a detour puts proxies there;
it is held by binding a port of its own, in whatever process.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pulsar_ext.errors import BrokerStartError, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Sequence


class Route(NamedTuple):
    """From a port where a proxy listens to a broker."""

    port: int
    host: str
    target: int


class Detour(NamedTuple):
    """A way round to every broker of a cluster.

    Args:
        lock: the port that its holder binds.
        routes: one for each broker.
        scheme: of the service URL.
    """

    lock: int
    routes: tuple[Route, ...]
    scheme: str = "pulsar"


def lease(detours: Sequence[Detour]) -> tuple[Detour, socket.socket]:
    """Take a detour that nobody has, until the socket is closed or the process ends.

    Raises:
        BrokerStartError: all of them are taken.
    """
    for detour in detours:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", detour.lock))
        except OSError:
            held.close()
        else:
            return detour, held
    raise BrokerStartError(f"all {len(detours)} detours of the cluster are taken: close other proxies before it")


def way_to(service_url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port of a URL of one broker.

    Raises:
        InvalidUse: it has several.
    """
    parts = urlsplit(service_url)
    if "," in parts.netloc:
        raise InvalidUse(f"look-ups at {service_url} lead past a proxy: give the broker's detours, or use its fixture")
    return parts.scheme, parts.hostname or "localhost", parts.port or 6650
