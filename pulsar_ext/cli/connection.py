"""The admin API of commands, and a client where they need both."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pulsar_ext.errors import InvalidUse

from .arguments import LOCAL_URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext import Client, PulsarAdmin

    from .arguments import Access

__all__ = ["connected", "open_admin", "open_client"]


def open_admin(url: str, admin_url: str | None, access: Access) -> PulsarAdmin:
    """Open the admin API at a URL of its own, or else at the usual port of the broker's host."""
    from pulsar_ext.admin import PulsarAdmin  # noqa: PLC0415  # loaded only by who needs it

    return PulsarAdmin(_admin_url_of(url, admin_url, access), **access.admin_options())


def open_client(url: str, admin: PulsarAdmin | str | None, access: Access) -> Client:
    """Open a client that logs errors only.

    Raises:
        InvalidUse: the URL is none of a broker.
    """
    import pulsar  # noqa: PLC0415  # loaded only by the command that needs it

    from pulsar_ext import Client  # noqa: PLC0415  # likewise

    options = access.client_options()
    try:
        return Client(url, admin=admin, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
    except InvalidUse:
        raise
    except ValueError as error:  # the C++ client's own word
        raise InvalidUse(f"The URL of the broker cannot be used ({error}); give --url pulsar://host:6650.") from error


@contextlib.contextmanager
def connected(admin_url: str | None, url: str | None, access: Access) -> Iterator[tuple[Client, PulsarAdmin]]:
    """Open a client and its admin API."""
    admin_url = _admin_url_of(url or LOCAL_URL, admin_url, access)
    with (
        open_admin(url or LOCAL_URL, admin_url, access) as admin,
        open_client(url or _service_of(admin_url), admin, access) as client,
    ):
        yield client, admin


def _admin_url_of(url: str, admin_url: str | None, access: Access) -> str:
    from pulsar_ext.admin import derive_admin_url  # noqa: PLC0415  # loaded only by who needs it

    return admin_url or derive_admin_url(url, has_secret=access.token is not None)


def _service_of(admin_url: str) -> str:
    """Give the usual port of each host of an admin URL, which was read before."""
    scheme, _, rest = admin_url.partition("://")
    name, port = ("pulsar+ssl", 6651) if scheme.lower() == "https" else ("pulsar", 6650)
    texts = rest.partition("/")[0].rpartition("@")[2].split(",")
    hosts = [urlsplit(f"//{text}").hostname or "" for text in texts]
    return f"{name}://" + ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
