"""Certificates for a test broker, by an authority of its own, and keys for messages, by the `openssl` command."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from pulsar_ext.errors import BrokerStartError

__all__ = ["certificate_files", "encryption_key_files", "openssl"]

_DAYS: Final = "3650"
_SECONDS: Final = 60
# Python 3.13 and later refuse certificates that do not say who vouches for them, and for what.
_AUTHORITY: Final = """
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_VOUCHED_FOR: Final = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""
_REQUEST: Final = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = {common_name}\n"


def certificate_files(names: str, subjects: dict[str, str]) -> dict[str, bytes]:
    """Make an authority, and a certificate and a key in PKCS 8 for each subject.

    Args:
        names: what every certificate is valid for, as OpenSSL writes it: `DNS:localhost, IP:127.0.0.1`.
        subjects: the common name of each by its file name.

    Returns:
        By file name: `ca.pem`, and `NAME.pem` and `NAME.key` of each subject. The authority's key is thrown away.

    Raises:
        BrokerStartError: there is no `openssl` command, or it failed.
    """
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as scratch:
        home = Path(scratch)
        _make(home, "ca", "pulsar-ext test authority", _AUTHORITY, ["-signkey", "ca.key"])
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
        for name, common_name in subjects.items():
            _make(home, name, common_name, _VOUCHED_FOR.format(names=names), signed)
        made = ["ca.pem", *(f"{name}.{kind}" for name in subjects for kind in ("pem", "key"))]
        return {name: (home / name).read_bytes() for name in made}


def encryption_key_files(directory: Path) -> tuple[Path, Path]:
    """Make a pair of keys for end-to-end encryption, in PEM.

    Args:
        directory: where `private.pem` and `public.pem` go.

    Returns:
        The files of the private and of the public key.

    Raises:
        BrokerStartError: there is no `openssl` command, or it failed.
    """
    _make_key(directory, "private.pem")
    openssl("pkey", "-in", "private.pem", "-pubout", "-out", "public.pem", home=directory)
    return directory / "private.pem", directory / "public.pem"


def openssl(*arguments: str, home: Path | None = None, given: str | None = None) -> str:
    """Run the `openssl` command in a directory, and give what it prints.

    Raises:
        BrokerStartError: it is not there, or failed.
    """
    try:
        done = subprocess.run(
            ["openssl", *arguments],
            cwd=home,
            input=given,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise BrokerStartError(
            "the profiles with TLS need the command openssl for their certificates, and it is not there: install it"
        ) from None
    if done.returncode:
        raise BrokerStartError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _make(home: Path, name: str, common_name: str, extensions: str, signer: list[str]) -> None:
    (home / "request.cnf").write_text(_REQUEST.format(common_name=common_name), encoding="ascii")
    (home / "extensions.cnf").write_text(extensions, encoding="ascii")
    key, request = f"{name}.key", f"{name}.csr"
    _make_key(home, key)
    openssl("req", "-new", "-config", "request.cnf", "-key", key, "-out", request, home=home)
    openssl(
        *("x509", "-req", "-sha256", "-days", _DAYS, "-in", request, "-out", f"{name}.pem"),
        *("-extfile", "extensions.cnf", *signer),
        home=home,
    )


def _make_key(home: Path, name: str) -> None:
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", name, home=home)
