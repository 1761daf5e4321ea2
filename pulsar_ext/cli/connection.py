"""The admin API of commands, and a client where they need both."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .arguments import LOCAL_URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext import Client, PulsarAdmin

    from .arguments import Access

__all__ = ["connected", "open_admin"]


def open_admin(url: str, admin_url: str | None, access: Access) -> PulsarAdmin:
    """Open the admin API at a URL of its own, or else at the usual port of the broker's host."""
    from pulsar_ext.admin import PulsarAdmin  # noqa: PLC0415  # loaded only by who needs it

    return PulsarAdmin(_admin_url_of(url, admin_url, access), **access.admin_options())


@contextlib.contextmanager
def connected(admin_url: str | None, url: str | None, access: Access) -> Iterator[tuple[Client, PulsarAdmin]]:
    """Open a client and its admin API."""
    import pulsar  # noqa: PLC0415  # loaded only by the command that needs it

    from pulsar_ext import Client, PulsarAdmin  # noqa: PLC0415  # likewise

    admin_url = _admin_url_of(url or LOCAL_URL, admin_url, access)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with (
        PulsarAdmin(admin_url, **access.admin_options()) as admin,
        Client(url or _service_of(admin_url), admin=admin, logger=quiet, **access.client_options()) as client,
    ):
        yield client, admin


def _admin_url_of(url: str, admin_url: str | None, access: Access) -> str:
    from pulsar_ext.admin import derive_admin_url  # noqa: PLC0415  # loaded only by who needs it

    return admin_url or derive_admin_url(url, has_secret=access.token is not None)


def _service_of(admin_url: str) -> str:
    parts = urlsplit(admin_url)
    secure = parts.scheme == "https"
    return f"pulsar{'+ssl' if secure else ''}://{parts.hostname}:{6651 if secure else 6650}"
