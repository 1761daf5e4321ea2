"""Parsing and derivation of admin URLs, and the addresses of a cluster (pure)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from pulsar_ext.errors import AdminRequired, InvalidUse

_ENVIRONMENT = "PULSAR_ADMIN_URL"
_ADMIN_OF_SERVICE = {"pulsar": ("http", 8080), "pulsar+ssl": ("https", 8443)}


class ClusterAddresses:
    """Admin URLs and hosts of one cluster, from `http[s]://[user:password@]host[:port][,more][/prefix]` or several.

    The credentials appear in no `repr()` and no error. Thread-safe: each attribute is replaced as a whole.
    """

    def __init__(self, url: str | Sequence[str]) -> None:
        texts = [url] if isinstance(url, str) else list(url)
        if not texts:
            raise InvalidUse("The admin URL is an empty list; pass at least one URL")
        read = [_read(text) for text in texts]
        known = {credentials for _, credentials in read if credentials is not None}
        if len(known) > 1:
            raise InvalidUse("The admin URLs have different users or passwords; use one for the whole cluster")
        self.credentials = known.pop() if known else None
        """User and password, if a URL contained them."""
        self.bases = tuple(dict.fromkeys(base for of_one, _ in read for base in of_one))
        """Scheme, host, port and path prefix of each URL without a trailing slash, in the order of use."""
        self._hosts = frozenset(map(host_of, self.bases))

    @property
    def uses_tls(self) -> bool:
        return any(base.startswith("https:") for base in self.bases)

    def prefer(self, base: str) -> None:
        bases = self.bases
        if bases[0] != base:
            at = bases.index(base)
            self.bases = bases[at:] + bases[:at]

    def is_known(self, url: str) -> bool:
        """Return whether the URL's host was passed by the application, or is listed as a broker by the cluster."""
        return host_of(url) in self._hosts

    def add_brokers(self, brokers: frozenset[str]) -> None:
        self._hosts = self._hosts | brokers


def _read(text: str) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    # The text may contain a password, so no error repeats it.
    if not isinstance(text, str) or "://" not in text:
        raise InvalidUse("The admin URL must have the form http://host:8080")
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in {"http", "https"}:
        raise InvalidUse(f"The admin URL must begin with http:// or https://, not {scheme}://; see derive_admin_url()")
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
    """Return `PULSAR_ADMIN_URL` if it is set, otherwise the service URL's hosts with the default admin port.

    `pulsar://h:6650,h2` becomes `http://h:8080,h2:8080`, and `pulsar+ssl://h:6651` becomes `https://h:8443`; an http or
    https service URL is the admin URL. With `has_secret`, a derived URL without TLS raises `AdminRequired`, as nothing
    would prove that the listener is a broker.
    """
    if configured := (os.environ if environment is None else environment).get(_ENVIRONMENT):
        return configured
    scheme, separator, rest = service_url.partition("://")
    if separator and scheme in {"http", "https"}:
        return service_url
    if not separator or scheme not in _ADMIN_OF_SERVICE:
        raise InvalidUse(
            "Cannot derive the admin URL: the service URL must begin with pulsar://, pulsar+ssl://, http:// or "
            f"https://; pass admin= or set {_ENVIRONMENT}"
        )
    admin_scheme, port = _ADMIN_OF_SERVICE[scheme]
    hosts = rest.partition("/")[0].rpartition("@")[2].split(",")
    guessed = f"{admin_scheme}://{','.join(_host_and_port(host, port) for host in hosts)}"
    if has_secret and admin_scheme == "http":
        raise AdminRequired(
            f"The admin URL would be derived as {guessed}, and the token or password sent there over plain http. "
            f"Nothing was sent; pass admin= or set {_ENVIRONMENT}, or connect with TLS (pulsar+ssl://)"
        )
    return guessed


def host_of(address: str) -> str:
    """Return the lower-case host of a URL or of `host:port`; an empty string if it has none."""
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return ""


def scheme_of(url: str) -> str:
    """Return the lower-case scheme of a URL; an empty string if the URL is invalid."""
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


def is_less_safe(url: str, target: str) -> bool:
    """Return whether `target` is not http(s), or lacks TLS while `url` has it."""
    scheme = scheme_of(target)
    return scheme not in {"http", "https"} or (scheme_of(url) == "https" and scheme != "https")


def _host_and_port(text: str, port: int | None = None) -> str:
    """Validate `host[:port]` and return it; `port` replaces the text's own port."""
    try:
        parts = urlsplit(f"//{text}")
        found, own_port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidUse(f"Expected host[:port] in the admin URL, got {text!r}") from error
    if not found or parts.path or parts.query or parts.fragment or parts.username is not None or " " in text:
        raise InvalidUse(f"Expected host[:port] in the admin URL, got {text!r}")
    host = f"[{found}]" if ":" in found else found
    number = own_port if port is None else port
    return host if number is None else f"{host}:{number}"
