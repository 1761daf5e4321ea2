"""TLS files may change while an admin API is open."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.admin._core import Request
from pulsar_ext.admin._session import error_of_connection
from pulsar_ext.admin._transport import TlsFiles, certificate_expiry
from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.identity import certificate_files


@pytest.fixture(scope="module")
def pems():
    """Return certificates and keys of two clients, and the authority's certificate."""
    return certificate_files(["localhost"], {"one": "one", "two": "two"})


@pytest.fixture
def files(tmp_path, pems):
    """Write the files of the first client; return a function that overwrites them with others."""

    def write(certificate, key):
        for name, source in (("c.pem", f"{certificate}.pem"), ("c.key", f"{key}.key"), ("ca.pem", "ca.pem")):
            beside = tmp_path / "new"
            beside.write_bytes(pems[source])
            beside.replace(tmp_path / name)

    write("one", "one")
    return write


def tls(home):
    return TlsFiles(*(str(home / name) for name in ("ca.pem", "c.pem", "c.key")), is_needed=True)


def test_changed_tls_files_are_loaded_again(files, tmp_path):
    """The settings are one object until a file changes."""
    read = tls(tmp_path)
    first = read.context()
    assert read.context() is first
    files("two", "two")
    assert read.context() is not first
    (tmp_path / "ca.pem").write_bytes((tmp_path / "ca.pem").read_bytes() * 2)
    assert read.context() is not first


def test_incomplete_renewal_keeps_the_settings(files, tmp_path, caplog):
    """The previous settings stay in use with a warning while certificate and key do not match or one is missing."""
    read = tls(tmp_path)
    first = read.context()
    files("two", "one")
    assert read.context() is first
    assert "cannot be used" in caplog.text
    (tmp_path / "c.key").unlink()
    assert read.context() is first
    files("two", "two")
    assert read.context() is not first


def test_invalid_tls_file_raises_on_construction(files, tmp_path):
    """A file that cannot be loaded raises when the admin API is created."""
    files("two", "one")
    with pytest.raises(InvalidUse, match=r"c\.pem"):
        tls(tmp_path)


def test_certificate_expiry_equals_cryptography(pems):
    """The expiry time is read from the certificate, in a chain from the first one."""
    end = x509.load_pem_x509_certificate(pems["one.pem"]).not_valid_after_utc
    assert certificate_expiry((pems["one.pem"] + pems["ca.pem"]).decode()) == end


@given(st.binary(max_size=60))
def test_text_without_certificate_raises(content):
    """Any text without a certificate raises ValueError."""
    with pytest.raises(ValueError):
        certificate_expiry(ssl.DER_cert_to_PEM_cert(content))
    with pytest.raises(ValueError):
        certificate_expiry("")


def test_error_has_the_certificate_expiry(files, tmp_path, monkeypatch):
    """The error of a connection that the broker rejects for the client's certificate has its expiry time."""
    read = tls(tmp_path)
    alert = httpx2.ReadError("[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN] ssl/tls alert certificate unknown (_ssl.c:2580)")
    request = Request("GET", "clusters", lambda answer: answer)

    def text():
        options = {"sent": True, "attempts": 1, "seconds": 0.1, "tls_advice": read.advice()}
        return str(error_of_connection(request, "https://h:8443", alert, **options))

    assert "c.pem is valid until 3000" in text()
    ended = datetime.now(UTC) - timedelta(seconds=1)
    monkeypatch.setattr("pulsar_ext.admin._transport.certificate_expiry", lambda _: ended)
    assert f"c.pem expired at {ended:%Y-%m-%d %H:%M:%S} UTC: renew it" in text()
