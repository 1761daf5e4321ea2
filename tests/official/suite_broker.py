"""Broker that the official client's test suite expects, as a child process.

The suite has settings, certificates and a password file for a container with fixed ports and fixed paths, and a script
that grants permissions to the anonymous role. This module does that from the suite's own files.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import httpx2

from pulsar_ext.testing import Profile, PulsarProcess
from pulsar_ext.testing.identity import KEY_FILE, signed_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["suite_broker"]

BROKER_PORT: Final = 6650
ADMIN_PORT: Final = 8080

_TOKEN_ROLE: Final = "token-principal"
_CERTIFICATES: Final = ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath")
# The harness sets these for a process on this machine.
_OWN: Final = (
    "bindAddress",
    "brokerServicePort",
    "webServicePort",
    "clusterName",
    "tokenSecretKey",
    "brokerClientAuthenticationPlugin",
    "brokerClientAuthenticationParameters",
)
_DISK_FULL: Final = "0.99"


@contextlib.contextmanager
def suite_broker(tests: Path) -> Iterator[PulsarProcess]:
    """Run a fresh broker for the suite, and write the token that its tests read.

    Args:
        tests: a copy of the suite's `tests` directory; `.test-token.txt` is written there.

    Raises:
        BrokerStartError: it did not start, for instance because one of the ports 6650, 6651, 8080, 8443 is in use.
    """
    configuration = tests / "test-conf"
    profile = Profile("official-suite", "as the official suite configures it", _settings(configuration), True)  # noqa: FBT003
    password_file = f"-Dpulsar.auth.basic.conf={configuration / '.htpasswd'}"
    with PulsarProcess(profile, broker_port=BROKER_PORT, admin_port=ADMIN_PORT, java_options=[password_file]) as broker:
        assert broker.data_dir is not None
        key = (broker.data_dir / KEY_FILE).read_bytes()
        (tests / ".test-token.txt").write_text(signed_token(key, _TOKEN_ROLE))
        _permit(broker)
        yield broker


def _settings(configuration: Path) -> dict[str, str]:
    lines = (configuration / "standalone-ssl.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    settings = {name.strip(): value.strip() for name, value in pairs}
    for name in _CERTIFICATES:
        settings[name] = str(configuration.parent / settings[name])
    # Here an empty value means the broker's default, and several defaults are not empty.
    settings = {name: value for name, value in settings.items() if value and name not in _OWN}
    return {
        **settings,
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "diskUsageThreshold": _DISK_FULL,
    }


def _permit(broker: PulsarProcess) -> None:
    """Grant the permissions of the suite's start script."""
    headers = {"Authorization": f"Bearer {broker.token}"}
    with httpx2.Client(base_url=f"{broker.admin_url}/admin/v2/", headers=headers, timeout=30, trust_env=False) as http:

        def call(method: str, path: str, content: Any = None) -> None:
            http.request(method, path, json=content).raise_for_status()

        call("POST", "tenants/public", {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]})
        call("PUT", "namespaces/public/default-2")
        call("PUT", "tenants/private", {"adminRoles": [], "allowedClusters": ["standalone"]})
        call("PUT", "namespaces/private/auth")
        for namespace in ("public/default", "public/default-2"):
            call("POST", f"namespaces/{namespace}/permissions/anonymous", ["produce", "consume"])
        call("POST", f"namespaces/private/auth/permissions/{_TOKEN_ROLE}", ["produce", "consume"])
