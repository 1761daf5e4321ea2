"""Clients and admin APIs, one for each process and set of options.

Spark's Python workers are forked and reused. A client is created when it is first needed, never before a fork, and is
kept for the next task of the same worker.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.client.client import Client

if TYPE_CHECKING:
    from .options import Settings

__all__ = ["admin_of", "client_of"]

_ADMIN_SECONDS = 60.0
"""How long a request is retried while the broker is down."""

_TLS = frozenset(
    {
        "tls_trust_certs_file_path",
        "tls_allow_insecure_connection",
        "tls_validate_hostname",
        "tls_certificate_file_path",
        "tls_private_key_file_path",
    }
)

_clients: dict[tuple[int, str], Client] = {}
_admins: dict[tuple[int, str], PulsarAdmin] = {}
_lock = Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_lock=Lock()))


def _key(settings: Settings) -> tuple[int, str]:
    given = [settings["service.url"], settings["admin.url"], settings["token"], settings.passed.get("pulsar.client.")]
    return os.getpid(), json.dumps(given, sort_keys=True)


def admin_of(settings: Settings) -> PulsarAdmin:
    """Give this process's admin API.

    Raises:
        InvalidUse: option `admin.url` is missing, and the URL cannot be derived from the service URL, or would be a
            guess to which the token would go without TLS.
    """
    key = _key(settings)
    passed = settings.passed.get("pulsar.client.", {})
    tls = {name: value for name, value in passed.items() if name in _TLS}
    with _lock:
        if key not in _admins:
            _admins[key] = PulsarAdmin(
                settings["admin.url"]
                or derive_admin_url(settings["service.url"], has_secret=settings["token"] is not None),
                token=settings["token"],
                deadline_seconds=_ADMIN_SECONDS,
                max_attempts=1000,
                **tls,
            )
        return _admins[key]


def client_of(settings: Settings) -> Client:
    """Give this process's client."""
    admin = admin_of(settings)
    key = _key(settings)
    with _lock:
        if key not in _clients:
            options: dict[str, Any] = dict(settings.passed.get("pulsar.client.", {}))
            certificate = options.get("tls_certificate_file_path")
            private_key = options.get("tls_private_key_file_path")
            if settings["token"] is not None:
                options["authentication"] = AuthenticationToken(settings["token"])
            elif certificate is not None and private_key is not None:
                # By themselves the two encrypt, and authenticate nobody.
                options["authentication"] = AuthenticationTLS(certificate, private_key)
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            _clients[key] = Client(settings["service.url"], admin=admin, logger=quiet, **options)
        return _clients[key]
