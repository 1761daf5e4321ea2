"""Where the admin API is: URLs read, derived and freed of credentials (pure)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pulsar_ext.errors import AdminRequired, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENVIRONMENT = "PULSAR_ADMIN_URL"
_ADMIN_OF_SERVICE = {"pulsar": ("http", 8080), "pulsar+ssl": ("https", 8443)}


@dataclass(frozen=True, slots=True)
class AdminUrl:
    """The admin URLs of one cluster without their credentials, which stay out of `repr()` and of every error.

    Args:
        bases: scheme, host, port and path prefix of each, without a slash at the end, in the order of asking.
        credentials: user and password, if a URL carried them.
    """

    bases: tuple[str, ...]
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str | Sequence[str]) -> AdminUrl:
        """Read `http[s]://[user:password@]host[:port][,more hosts][/prefix]`, or several of these.

        Raises:
            InvalidUse: one of them is not an admin URL, or they carry different credentials.
        """
        texts = [url] if isinstance(url, str) else list(url)
        if not texts:
            raise InvalidUse("No admin URL is given")
        read = [_read(text) for text in texts]
        known = {credentials for _, credentials in read if credentials is not None}
        if len(known) > 1:
            raise InvalidUse("The admin URLs carry different users or passwords; those of one cluster are the same")
        bases = dict.fromkeys(base for of_one, _ in read for base in of_one)
        return cls(bases=tuple(bases), credentials=known.pop() if known else None)

    @property
    def uses_tls(self) -> bool:
        """Whether one of them begins with https."""
        return any(base.startswith("https:") for base in self.bases)


def _read(text: str) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    # Nothing of the text is repeated in an error: it may carry a password.
    if not isinstance(text, str) or "://" not in text:
        raise InvalidUse("The admin URL is not of the form http://host:8080")
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in {"http", "https"}:
        raise InvalidUse(f"The admin URL must be http:// or https://, not {scheme}://; see derive_admin_url()")
    hosts, slash, path = rest.partition("/")
    userinfo, at, hosts = hosts.rpartition("@")
    prefix = (slash + path).rstrip("/").removesuffix("/admin/v2")
    if "?" in prefix or "#" in prefix:
        raise InvalidUse("The admin URL must not have a query or a fragment")
    user, _, password = userinfo.partition(":")
    bases = tuple(f"{scheme.lower()}://{_host_and_port(host)}{prefix}" for host in hosts.split(","))
    return bases, (unquote(user), unquote(password)) if at else None


def derive_admin_url(
    service_url: str, environment: Mapping[str, str] | None = None, *, has_secret: bool = False
) -> str:
    """Derive the admin URL: `PULSAR_ADMIN_URL` if it is set, else the service URL's hosts with the usual port.

    `pulsar://h:6650,h2` gives `http://h:8080,h2:8080`, `pulsar+ssl://h:6651` gives `https://h:8443`; an http or https
    service URL is the admin URL.

    Args:
        service_url: the client's service URL.
        environment: the variables to look into; by default the process's own.
        has_secret: whether a token or a password will be sent there. It goes to a guessed port with TLS only: nobody
            said that a broker listens there, and without TLS nothing proves it.

    Raises:
        InvalidUse: the service URL is of no known form.
        AdminRequired: a secret would go over plain http to a guessed port.
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
    hosts = rest.partition("/")[0].rpartition("@")[2].split(",")
    guessed = f"{admin_scheme}://{','.join(_host_and_port(host, port) for host in hosts)}"
    if has_secret and admin_scheme == "http":
        raise AdminRequired(
            f"The admin URL would be a guess, {guessed}, and the token or password would go there over plain http. "
            f"Nothing was sent; give admin= or set {_ENVIRONMENT}, or connect with TLS (pulsar+ssl://)"
        )
    return guessed


def host_of(address: str) -> str:
    """Give the host of a URL or of `host:port`, in lower case; an empty text if there is none."""
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""


def scheme_of(url: str) -> str:
    """Give the scheme of a URL, in lower case; an empty text if it is none."""
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def is_less_safe(url: str, target: str) -> bool:
    """Whether others could read along at what a URL names, and not at that URL; or it is not http at all."""
    scheme = scheme_of(target)
    return scheme not in {"http", "https"} or (scheme_of(url) == "https" and scheme != "https")


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
