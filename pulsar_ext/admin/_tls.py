"""TLS settings of the admin API, from files that are read again when they change, as renewed certificates do."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

from pulsar_ext.errors import InvalidUse

__all__ = ["TlsFiles", "certificate_end"]

logger = logging.getLogger("pulsar_ext.admin")

_WITHOUT_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For URLs without TLS: a child that is forked while another thread makes a context may wait for OpenSSL for ever."""
_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION_TAG = 0xA0
_UTC_TIME = 0x17
_LONG = 0x80

Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles:
    """The TLS settings that files say, built when this is made and again when a file has changed.

    Args:
        trust_certs_file_path: the CAs to trust; None for the system's.
        certificate_file_path: the client's own certificate.
        private_key_file_path: its key, unless that is in the same file.
        is_needed: whether the URL begins with https.
        allow_insecure_connection: whether any certificate is accepted.
        validate_hostname: whether the certificate has to name the host.

    Raises:
        InvalidUse: a file is missing or unreadable, or only one of certificate and key is given.
    """

    def __init__(
        self,
        trust_certs_file_path: str | None,
        certificate_file_path: str | None = None,
        private_key_file_path: str | None = None,
        *,
        is_needed: bool,
        allow_insecure_connection: bool = False,
        validate_hostname: bool = True,
    ) -> None:
        if private_key_file_path and not certificate_file_path:
            raise InvalidUse("tls_private_key_file_path is given without tls_certificate_file_path")
        self._trust, self._certificate, self._key = trust_certs_file_path, certificate_file_path, private_key_file_path
        self._insecure, self._validates = allow_insecure_connection, validate_hostname
        self._paths = [path for path in (self._trust, self._certificate, self._key) if path]
        # No lock guards the pair: it may be held at the moment of a fork. At worst two threads read the same files.
        stamp = self._stamp()
        self._built = (stamp, self._build() if is_needed or self._paths else _WITHOUT_TLS)

    def context(self) -> ssl.SSLContext:
        """Return the settings of the files as they are now, the same object as long as no file changes.

        While the files do not go together, as in the middle of a renewal, the settings before stay.
        """
        if not self._paths:
            return self._built[1]
        stamp = self._stamp()  # before they are read: what changes meanwhile is read the next time
        if stamp != self._built[0]:
            try:
                self._built = (stamp, self._build())
            except InvalidUse as error:
                logger.warning("The TLS files changed and cannot be used; those read before stay in use. %s", error)
        return self._built[1]

    def advice(self) -> str:
        """Return what to know of the client's certificate when a TLS connection fails; empty without one."""
        if not self._certificate:
            return ""
        try:
            end = certificate_end(Path(self._certificate).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return f"the client's certificate {self._certificate} cannot be read"
        if end <= datetime.now(UTC):
            return f"the client's certificate {self._certificate} ended at {end:%Y-%m-%d %H:%M:%S} UTC: renew it"
        return (
            f"the client's certificate {self._certificate} is valid until {end:%Y-%m-%d %H:%M:%S} UTC: check that the "
            "broker trusts its authority"
        )

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._paths))

    def _build(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._trust)
            if self._certificate:
                context.load_cert_chain(self._certificate, self._key)
        except OSError as error:
            raise InvalidUse(
                f"Cannot load the TLS files (trust {self._trust!r}, certificate {self._certificate!r}, "
                f"key {self._key!r}): {error}"
            ) from error
        if self._insecure or not self._validates:
            context.check_hostname = False
        if self._insecure:
            context.verify_mode = ssl.CERT_NONE
        return context


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # of a link's target, which is what a mounted secret changes
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def certificate_end(pem: str) -> datetime:
    """Return when the first certificate of a PEM text ends (pure).

    Raises:
        ValueError: there is no certificate in it.
    """
    begin = pem.find(_PEM_BEGIN)
    end = pem.find(_PEM_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate")
    try:
        certificate = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_PEM_END)])
        fields = _parts(_parts(_parts(certificate)[0][1])[0][1])  # of the part that is signed
        # Version (optional), serial number, signature, issuer, validity: its beginning and its end.
        validity = fields[4 if fields[0][0] == _VERSION_TAG else 3][1]
        tag, text = _parts(validity)[1]
    except IndexError:
        raise ValueError("no certificate") from None
    digits = text.decode("ascii").rstrip("Z")
    if tag == _UTC_TIME:  # two digits of a year from 1950 to 2049
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element of a DER sequence's content."""
    found = []
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & _LONG:
            length = size & ~_LONG
            size = int.from_bytes(der[at : at + length], "big")
            at += length
        found.append((tag, der[at : at + size]))
        at += size
    return found
