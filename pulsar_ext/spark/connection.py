"""Clients and admin APIs, one per process and set of options.

Spark's Python workers are forked and reused. A client is created on first use, never before a fork, and is kept for
the next task of the same worker.

The keys of end-to-end encryption are files on the executors. Only tasks read them.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import pulsar
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pulsar_ext._native.locks import Lock
from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.client.authentication import AuthenticationTLS, AuthenticationToken
from pulsar_ext.client.client import Client
from pulsar_ext.errors import InvalidUse

from .options import Settings

T = TypeVar("T")

_BUSY = stop_after_delay(60)
_ADMIN_SECONDS = 60.0
"""Duration in seconds for which a request is retried while the broker is down."""

_lock = Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_lock=Lock()))


def admin_of(settings: Settings) -> PulsarAdmin:
    """Return this process's admin API."""
    with _lock:
        return _admin(*_access(settings))


def client_of(settings: Settings) -> Client:
    """Return this process's client."""
    with _lock:
        return _client(*_access(settings))


def _access(settings: Settings) -> tuple[int, str]:
    names = "service.url", "admin.url", "token"
    given = [*(settings[name] for name in names), settings.passed.get("pulsar.client.", {})]
    return os.getpid(), json.dumps(given, sort_keys=True)


@cache
def _admin(_: int, access: str) -> PulsarAdmin:
    service_url, url, token, passed = json.loads(access)
    return PulsarAdmin(
        url or derive_admin_url(service_url, has_secret=token is not None),
        token=token,
        deadline_seconds=_ADMIN_SECONDS,
        max_attempts=1000,
        **{name: value for name, value in passed.items() if name.startswith("tls_")},
    )


@cache
def _client(process: int, access: str) -> Client:
    service_url, _, token, options = json.loads(access)
    certificate, private_key = options.get("tls_certificate_file_path"), options.get("tls_private_key_file_path")
    if token is not None:
        options["authentication"] = AuthenticationToken(token)
    elif certificate is not None and private_key is not None:
        # A certificate and its key encrypt the connection, but the broker authenticates only by a plugin.
        options["authentication"] = AuthenticationTLS(certificate, private_key)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return Client(service_url, admin=_admin(process, access), logger=quiet, **options)


def when_free(busy: type[Exception], connect: Callable[[], T]) -> T:
    """Connect; while it raises `busy`, wait for the disconnect of an earlier run, which may have been killed."""
    retrying = Retrying(retry=retry_if_exception_type(busy), stop=_BUSY, wait=wait_fixed(0.5), reraise=True)
    return retrying(connect)


def reader_keys(settings: Settings) -> dict[str, pulsar.CryptoKeyReader]:
    """Return the arguments for a reader that decrypts; empty without option `cryptoPrivateKeyFile`."""
    file = settings["cryptoPrivateKeyFile"]
    if file is None:
        return {}
    _check("cryptoPrivateKeyFile", file, "PRIVATE KEY")
    return {"crypto_key_reader": pulsar.CryptoKeyReader("", file)}


def producer_keys(settings: Settings) -> dict[str, str | pulsar.CryptoKeyReader]:
    """Return the arguments for a producer that encrypts; empty without option `cryptoPublicKeyFile`."""
    file = settings["cryptoPublicKeyFile"]
    if file is None:
        return {}
    _check("cryptoPublicKeyFile", file, "PUBLIC KEY")
    return {"encryption_key": settings["encryptionKey"], "crypto_key_reader": pulsar.CryptoKeyReader(file, "")}


def _check(option: str, file: str, kind: str) -> None:
    """Check a key file. With an invalid one, the C++ client only logs and delivers nothing, or asks for a password."""
    try:
        heads = [line for line in Path(file).read_text("latin-1").splitlines() if line.startswith("-----BEGIN ")]
    except OSError as error:
        raise InvalidUse(
            f"Option {option}: {file} cannot be read on {socket.gethostname()} ({error.strerror}). Send it to the "
            "executors with --files, and set the option to its file name."
        ) from None
    if not any(kind in head and "ENCRYPTED" not in head for head in heads):
        found = ", ".join(head.strip("- ") for head in heads) or "no PEM"
        raise InvalidUse(f"Option {option}: {file} must contain a {kind} in PEM without a password; it has {found}.")
