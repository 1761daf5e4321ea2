"""End-to-end encryption: the keys are in files that each executor has, and only tasks read them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from .options import Settings

__all__ = ["producer_keys", "reader_keys"]


def reader_keys(settings: Settings) -> dict[str, Any]:
    """Give the arguments by which a reader decrypts; none without option `cryptoPrivateKeyFile`.

    Raises:
        InvalidUse: the file is not here, or has no private key that can be used.
    """
    file = settings["cryptoPrivateKeyFile"]
    if file is None:
        return {}
    _check("cryptoPrivateKeyFile", file, "PRIVATE KEY")
    return {"crypto_key_reader": pulsar.CryptoKeyReader("", file)}


def producer_keys(settings: Settings) -> dict[str, Any]:
    """Give the arguments by which a producer encrypts; none without option `cryptoPublicKeyFile`.

    Raises:
        InvalidUse: the file is not here, or has no public key.
    """
    file = settings["cryptoPublicKeyFile"]
    if file is None:
        return {}
    _check("cryptoPublicKeyFile", file, "PUBLIC KEY")
    return {"encryption_key": settings["encryptionKey"], "crypto_key_reader": pulsar.CryptoKeyReader(file, "")}


def _check(option: str, file: str, kind: str) -> None:
    """Check a file that the C++ client would only log about, and then deliver nothing, or ask for a password."""
    try:
        heads = [line for line in Path(file).read_text("latin-1").splitlines() if line.startswith("-----BEGIN ")]
    except OSError as error:
        raise InvalidUse(
            f"Option {option}: {file} cannot be read on {socket.gethostname()} ({error.strerror}). Send it to the "
            "executors with --files, and give its bare name."
        ) from None
    if not any(kind in head and "ENCRYPTED" not in head for head in heads):
        found = ", ".join(head.strip("- ") for head in heads) or "no PEM"
        raise InvalidUse(f"Option {option}: {file} has to have a {kind} in PEM without a password, and has {found}.")
