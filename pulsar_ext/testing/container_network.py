"""A container on a Docker network: what the broker calls itself there, and how both kinds of client find their way.

A look-up answers with an address to connect to. Containers of the network need a name of the network in it, the machine
that runs the tests needs `localhost` and a port of its own: so the broker has two listeners, and the one that a client
came in by decides which address it is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HOST_PORT", "DockerNetwork", "check_alias", "check_settings", "listener_settings"]

HOST_PORT: Final = 6651
"""The port in the container for clients that come through the host's port; those of the network use the usual one."""

# What Java takes for a host name; it finds none in a URL with an underscore.
_ALIAS: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_NAMES: Final = ("advertisedListeners", "internalListenerName", "bindAddresses")


class DockerNetwork(Protocol):
    """A Docker network that exists: testcontainers' `Network`, or the engine's own."""

    @property
    def name(self) -> str | None:
        """What the engine knows it by."""
        ...


def check_alias(alias: str) -> str:
    """Return the alias as it is.

    Raises:
        InvalidUse: it cannot be a host name in a URL.
    """
    if _ALIAS.fullmatch(alias) is None:
        raise InvalidUse(
            f"the network alias {alias!r} cannot be a host name: letters, digits, hyphens and dots, no underscore"
        )
    return alias


def check_settings(settings: Mapping[str, object]) -> None:
    """Refuse settings by which the broker's two listeners are described.

    Raises:
        InvalidUse: one of them is among the caller's own.
    """
    if clash := [name for name in _NAMES if name in settings]:
        raise InvalidUse(f"a broker on a network sets {', '.join(clash)} itself: leave it out, or the network")


def listener_settings(alias: str, broker_port: int, outside_port: int, *, tls: bool) -> dict[str, str]:
    """Return the settings of both listeners.

    Args:
        alias: what the broker is called on the network.
        broker_port: where containers of the network connect.
        outside_port: the host's port, which is published as `HOST_PORT` of the container.
        tls: whether the broker speaks TLS.
    """
    scheme = "pulsar+ssl" if tls else "pulsar"
    listeners = {"network": f"{scheme}://{alias}:{broker_port}", "host": f"{scheme}://localhost:{outside_port}"}
    return {
        "advertisedListeners": ",".join(f"{name}:{url}" for name, url in listeners.items()),
        # The broker's own clients are in its container, where the host's port leads nowhere.
        "internalListenerName": "network",
        "bindAddresses": f"host:{scheme}://0.0.0.0:{HOST_PORT}",
    }
