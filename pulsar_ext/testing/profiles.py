"""Configuration of a test broker: the version of Pulsar, named profiles and the full `standalone.conf`.

Both back ends (a child process and a container) use these settings, so that a test sees the same broker on either. A
profile is a few settings on top of the base; each profile that a test uses is a separate broker.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


PULSAR_VERSION: Final = "4.2.4"
OTHER_VERSIONS: Final = ("3.0.7", "3.3.2", "4.0.7", "5.0.1")
"""Versions on which the integration tests of the client have run, and whose jars are listed."""

SUPERUSER: Final = "admin"
THROUGH: Final = ("standalone", "mtls", "cluster")
"""Kinds of brokers that tests can run on; see `Profile.through`."""

_CLUSTER_BROKERS: Final = 2

# A bookie drops the connection at the first frame above its limit, and sends then silently time out. So the frame limit
# needs room for the headers of a message of full size.
_FRAME_HEADROOM_BYTES: Final = 10 * 1024
_DEFAULT_MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
_SMALL_CHUNK_BYTES: Final = 102_400
_ASCII: Final = 128

Authentication = Literal["token", "certificate", "basic", "oauth2"]
"""Kind of a broker's authentication."""

_INTERCEPTORS: Final = ",".join(
    f"org.apache.pulsar.common.intercept.{name}"
    for name in ("AppendBrokerTimestampMetadataInterceptor", "AppendIndexMetadataInterceptor")
)

_BASE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clusterName": "standalone",
        "advertisedAddress": "localhost",
        # An empty value means the embedded store, in the data directory.
        "metadataStoreUrl": "",
        "configurationMetadataStoreUrl": "",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
        # A virtual machine's network card may report no speed, and without one Pulsar 3 does not start.
        "loadBalancerOverrideBrokerNicSpeedGbps": "1",
        # Since Pulsar 5 the embedded bookie needs this.
        "allowLoopback": "true",
        "diskUsageThreshold": "0.99",
        # A killed broker's writes are in the page cache; only a power cut would need the slow sync.
        "journalSyncData": "false",
        # On by default since Pulsar 4.2; off here, so that the profile decides.
        "acknowledgmentAtBatchIndexLevelEnabled": "false",
        # Pulsar 3.0 keeps messages without a key by default.
        "topicCompactionRetainNullKey": "false",
        # Test namespaces are deleted while clients may still be connected.
        "forceDeleteNamespaceAllowed": "true",
        "forceDeleteTenantAllowed": "true",
        # A topic without activity for a minute must still exist in the next step of a test.
        "brokerDeleteInactiveTopicsEnabled": "false",
        # By default an idle broker wakes up a hundred times a second for this, which is a third of its idle load.
        "managedLedgerCacheEvictionIntervalMs": "1000",
    }
)


# Java's own TLS: the small image has no native libraries for it, and tests do not need their speed.
_TLS: Final[Mapping[str, str]] = MappingProxyType(
    {"brokerClientTlsEnabled": "true", "tlsProvider": "JDK", "webServiceTlsProvider": ""}
)
_PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_CLIENT_PLUGIN: Final = "org.apache.pulsar.client.impl.auth.Authentication"


@dataclass(frozen=True)
class Profile:
    """Named broker configuration.

    Args:
        name: its name in tests and at the command line.
        description: a line for users.
        settings: broker settings on top of the base, by their names in `broker.conf`.
        authentication: one of `Authentication`, True for `token`, False for none. The back end creates the required
            files; `settings` name the broker's providers.
        tls: True if the broker listens with TLS only.
        brokers: number of brokers; more than one are a cluster, with two bookies and ZooKeeper.
    """

    name: str
    description: str
    settings: Mapping[str, str] = field(default_factory=dict)
    authentication: bool | Authentication = False
    tls: bool = False
    brokers: int = 1

    @property
    def kind(self) -> Authentication | None:
        """Kind of authentication; None without authentication."""
        if isinstance(self.authentication, bool):
            return "token" if self.authentication else None
        return self.authentication

    def through(self, way: str) -> Profile:
        """Return this profile for another kind of broker.

        Args:
            way: one of `THROUGH`: `standalone` is the profile itself, `mtls` adds the profile `mtls`, and `cluster` has
                two brokers.

        Raises:
            InvalidUse: the kind is unknown, or the profile has its own authentication or TLS, which `mtls` would
                replace.
        """
        if way not in THROUGH:
            raise InvalidUse(f"the kind of broker must be one of {', '.join(THROUGH)}, got {way!r}")
        if way == "cluster":
            return replace(self, name=f"{self.name}+cluster", brokers=max(self.brokers, _CLUSTER_BROKERS))
        mutual = PROFILES["mtls"]
        if way == "standalone" or self.name == mutual.name:
            return self
        if self.kind is not None or self.tls:
            raise InvalidUse(f"the profile {self.name} has its own TLS or authentication, so mtls cannot be added")
        return replace(
            self,
            name=f"{self.name}+mtls",
            settings={**self.settings, **mutual.settings},
            authentication=mutual.authentication,
            tls=True,
        )


def _secured(*providers: str, client: str = "Token") -> dict[str, str]:
    """Return the settings of a broker with authentication that connects to other brokers with `client`."""
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(_PROVIDER + name for name in providers),
        "authorizationEnabled": "true",
        "superUserRoles": SUPERUSER,
        "brokerClientAuthenticationPlugin": _CLIENT_PLUGIN + client,
    }


_PROFILES: Final = (
    Profile("plain", "the broker's defaults, except that only whole batches can be acknowledged"),
    Profile("dedup", "message deduplication on for every topic", {"brokerDeduplicationEnabled": "true"}),
    Profile(
        "batch-index-acks",
        "single messages of a batch can be acknowledged",
        {"acknowledgmentAtBatchIndexLevelEnabled": "true"},
    ),
    Profile(
        "entry-index",
        "entries have an index and a timestamp of the broker, which clients see",
        {"brokerEntryMetadataInterceptors": _INTERCEPTORS, "exposingBrokerEntryMetadataToClientEnabled": "true"},
    ),
    Profile(
        "small-chunks",
        "messages above 100 KiB are chunked, ledgers may roll over at once",
        {"maxMessageSize": str(_SMALL_CHUNK_BYTES), "managedLedgerMinLedgerRolloverTimeMinutes": "0"},
    ),
    Profile("auth", "token authentication, authorization on, one superuser", _secured("Token"), authentication=True),
    Profile("tls", "TLS on both ports, and on no other", tls=True),
    Profile(
        "mtls",
        "TLS with mandatory client certificates, authorization on",
        {**_secured("Tls", client="Tls"), "tlsRequireTrustedClientCertOnConnect": "true"},
        authentication="certificate",
        tls=True,
    ),
    Profile(
        "basic",
        "TLS, user and password, authorization on",
        # The broker's own client uses a token: a password would have to be in the settings, which the broker logs.
        _secured("Basic", "Token"),
        authentication="basic",
        tls=True,
    ),
    Profile(
        "oauth2",
        "TLS, access tokens of an OAuth 2.0 endpoint on the loopback, authorization on",
        _secured("Token"),
        authentication="oauth2",
        tls=True,
    ),
)
PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({profile.name: profile for profile in _PROFILES})


def get_profile(profile: str | Profile) -> Profile:
    """Return the profile with a name; a `Profile` is returned unchanged.

    Raises:
        InvalidUse: the name is unknown; the message lists the known ones.
    """
    if isinstance(profile, Profile):
        return profile
    try:
        return PROFILES[profile]
    except (KeyError, TypeError):
        raise InvalidUse(f"unknown broker profile {profile!r}; choose one of: {', '.join(PROFILES)}") from None


def broker_settings(
    profile: str | Profile = "plain",
    *,
    broker_port: int = 6650,
    admin_port: int = 8080,
    bind_address: str = "127.0.0.1",
    settings: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return all settings of a standalone broker: base, profile, then the caller's, each overriding the former.

    `nettyMaxFrameSizeBytes` is computed from `maxMessageSize` unless it is set.
    """
    chosen = get_profile(profile)
    if chosen.brokers != 1:
        raise InvalidUse(f"the profile {chosen.name} has {chosen.brokers} brokers; use start_broker or PulsarCluster")
    ports = {"brokerServicePort": str(broker_port), "webServicePort": str(admin_port)}
    if chosen.tls:
        ports = {f"{name}Tls": port for name, port in ports.items()} | dict.fromkeys(ports, "") | dict(_TLS)
    merged = {**_BASE, **ports, "bindAddress": bind_address, **chosen.settings}
    merged.update({name: _as_text(name, value) for name, value in (settings or {}).items()})
    largest = _as_bytes(merged, "maxMessageSize", _DEFAULT_MAX_MESSAGE_BYTES)
    needed = largest + _FRAME_HEADROOM_BYTES
    frame = _as_bytes(merged, "nettyMaxFrameSizeBytes", needed)
    if frame < needed:
        raise InvalidUse(
            f"nettyMaxFrameSizeBytes={frame} is too small for maxMessageSize={largest}: the bookie would drop the "
            f"connection at a message of full size; use {needed} or more, or omit it"
        )
    merged["nettyMaxFrameSizeBytes"] = str(frame)
    return merged


def standalone_conf(settings: Mapping[str, str]) -> str:
    """Return the text of a `standalone.conf` in ASCII, because Java reads such a file as Latin-1."""
    text = "".join(f"{name}={value}\n" for name, value in settings.items()).replace("\\", "\\\\")
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(unit) if unit < _ASCII else f"\\u{unit:04x}" for unit in units)


def _as_text(name: str, value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not name or any(character in name for character in "=: \t\r\n#!") or "\n" in text or "\r" in text:
        raise InvalidUse(f"the broker setting {name!r} is not valid in a properties file")
    return text


def _as_bytes(settings: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(settings.get(name, default))
    except ValueError:
        raise InvalidUse(f"the broker setting {name} must be a number of bytes, got {settings[name]!r}") from None


VARIABLE: Final = "PULSAR_EXT_PULSAR_VERSION"
# It becomes part of paths, of an image's tag and of a Maven project file.
_VERSION: Final = re.compile(r"\d+(?:\.\d+)*(?:[.-][A-Za-z0-9]+)*")


def requested_version(version: str | None = None) -> str | None:
    """Return the given version, else that of `PULSAR_EXT_PULSAR_VERSION`, else None; raise if it is invalid."""
    requested = os.environ.get(VARIABLE) or None if version is None else version
    if requested is not None and _VERSION.fullmatch(requested) is None:
        raise InvalidUse(f"{requested!r} is not a version of Pulsar; pass one such as {PULSAR_VERSION}")
    return requested


def choose_version(version: str | None = None) -> str:
    """Return the requested version, else the tested one."""
    return requested_version(version) or PULSAR_VERSION


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return the versions in descending order; candidates come after their release."""
    return sorted(set(versions), key=_order, reverse=True)


def _order(version: str) -> list[tuple[int, int, str]]:
    parts = [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"[.-]", version)]
    return [*parts, (1, -1, "")]
