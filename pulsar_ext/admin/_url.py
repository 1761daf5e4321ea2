"""Where the admin API is: URLs read, derived and freed of credentials (pure)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AdminUrl", "derive_admin_url"]

_ENVIRONMENT = "PULSAR_ADMIN_URL"
_ADMIN_OF_SERVICE = {"pulsar": ("http", 8080), "pulsar+ssl": ("https", 8443)}


@dataclass(frozen=True, slots=True)
class AdminUrl:
    """An admin URL without its credentials, which stay out of its `repr()` and of every error.

    Args:
        base: scheme, host, port and path prefix, without a slash at the end.
        credentials: user and password, if the URL carried them.
    """

    base: str
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> AdminUrl:
        """Read `http[s]://[user:password@]host[:port][,more hosts][/prefix]`; of several hosts, take the first.

        Raises:
            InvalidUse: it is not an admin URL.
        """
        # Nothing of the text is repeated in an error: it may carry a password.
        if not isinstance(text, str) or "://" not in text:
            raise InvalidUse("The admin URL is not of the form http://host:8080")
        scheme, _, rest = text.partition("://")
        if scheme.lower() not in {"http", "https"}:
            raise InvalidUse(f"The admin URL must be http:// or https://, not {scheme}://; see derive_admin_url()")
        hosts, slash, path = rest.partition("/")
        userinfo, at, hosts = hosts.rpartition("@")
        host = _host_and_port(hosts.split(",")[0])
        prefix = (slash + path).rstrip("/").removesuffix("/admin/v2")
        if "?" in prefix or "#" in prefix:
            raise InvalidUse("The admin URL must not have a query or a fragment")
        user, _, password = userinfo.partition(":")
        return cls(
            base=f"{scheme.lower()}://{host}{prefix}",
            credentials=(unquote(user), unquote(password)) if at else None,
        )


def derive_admin_url(service_url: str, environment: Mapping[str, str] | None = None) -> str:
    """Derive the admin URL: `PULSAR_ADMIN_URL` if it is set, else the service URL's first host with the usual port.

    `pulsar://h:6650,h2` gives `http://h:8080`, `pulsar+ssl://h:6651` gives `https://h:8443`; an http or https service
    URL is the admin URL.

    Args:
        service_url: the client's service URL.
        environment: the variables to look into; by default the process's own.

    Raises:
        InvalidUse: the service URL is of no known form.
    """
    if configured := (os.environ if environment is None else environment).get(_ENVIRONMENT):
        return configured
    scheme, separator, rest = service_url.partition("://")
    if separator and scheme in {"http", "https"}:
        return service_url
    if not separator or scheme not in _ADMIN_OF_SERVICE:
        raise InvalidUse(
            "Cannot derive the admin URL: the service URL does not begin with pulsar://, pulsar+ssl://, http:// or "
            f"https://; give admin= or set {_ENVIRONMENT}"
        )
    admin_scheme, port = _ADMIN_OF_SERVICE[scheme]
    first = rest.partition("/")[0].rpartition("@")[2].split(",")[0]
    return f"{admin_scheme}://{_host_and_port(first, port)}"


def _host_and_port(text: str, port: int | None = None) -> str:
    """Check `host[:port]`; with `port`, put that one in place of the text's own."""
    try:
        parts = urlsplit(f"//{text}")
        found, own_port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidUse(f"Not a host and port: {text!r}") from error
    if not found or parts.path or parts.query or parts.fragment or parts.username is not None or " " in text:
        raise InvalidUse(f"Not a host and port: {text!r}")
    host = f"[{found}]" if ":" in found else found
    number = own_port if port is None else port
    return host if number is None else f"{host}:{number}"
