"""TLS files that change while an admin API is open."""

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
from pulsar_ext.admin._transport import TlsFiles, certificate_end
from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.identity import certificate_files


@pytest.fixture(scope="module")
def pems():
    """Return a certificate and a key of each of two clients, and the authority's certificate."""
    return certificate_files(["localhost"], {"one": "one", "two": "two"})


@pytest.fixture
def files(tmp_path, pems):
    """Write the files of the first client, and return what writes those of another one over them."""

    def write(certificate, key):
        for name, source in (("c.pem", f"{certificate}.pem"), ("c.key", f"{key}.key"), ("ca.pem", "ca.pem")):
            beside = tmp_path / "new"
            beside.write_bytes(pems[source])
            beside.replace(tmp_path / name)

    write("one", "one")
    return write


def tls(home):
    return TlsFiles(*(str(home / name) for name in ("ca.pem", "c.pem", "c.key")), is_needed=True)


def test_files_are_read_again_when_one_changes(files, tmp_path):
    """The settings are the same object until a file changes, and then new ones."""
    read = tls(tmp_path)
    first = read.context()
    assert read.context() is first
    files("two", "two")
    assert read.context() is not first
    (tmp_path / "ca.pem").write_bytes((tmp_path / "ca.pem").read_bytes() * 2)
    assert read.context() is not first


def test_a_renewal_half_done_keeps_the_settings(files, tmp_path, caplog):
    """While certificate and key do not go together, or one is missing, the settings before stay, with a warning."""
    read = tls(tmp_path)
    first = read.context()
    files("two", "one")
    assert read.context() is first
    assert "cannot be used" in caplog.text
    (tmp_path / "c.key").unlink()
    assert read.context() is first
    files("two", "two")
    assert read.context() is not first


def test_what_cannot_be_loaded_at_first_raises(files, tmp_path):
    """A file that is wrong from the beginning is an error when the admin API is made."""
    files("two", "one")
    with pytest.raises(InvalidUse, match=r"c\.pem"):
        tls(tmp_path)


def test_the_end_of_a_certificate_is_what_cryptography_says(pems):
    """The end is read from the certificate itself, of a chain from the first one."""
    end = x509.load_pem_x509_certificate(pems["one.pem"]).not_valid_after_utc
    assert certificate_end((pems["one.pem"] + pems["ca.pem"]).decode()) == end


@given(st.binary(max_size=60))
def test_other_texts_have_no_end(content):
    """Whatever is no certificate raises ValueError, and nothing else."""
    with pytest.raises(ValueError):
        certificate_end(ssl.DER_cert_to_PEM_cert(content))
    with pytest.raises(ValueError):
        certificate_end("")


def test_an_error_names_the_end_of_the_certificate(files, tmp_path, monkeypatch):
    """A connection that the broker refuses for the client's certificate says when that ends, or that it has ended."""
    read = tls(tmp_path)
    alert = httpx2.ReadError("[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN] ssl/tls alert certificate unknown (_ssl.c:2580)")
    request = Request("GET", "clusters", lambda answer: answer)

    def text():
        options = {"sent": True, "attempts": 1, "seconds": 0.1, "tls_advice": read.advice()}
        return str(error_of_connection(request, "https://h:8443", alert, **options))

    assert "c.pem is valid until 3000" in text()
    ended = datetime.now(UTC) - timedelta(seconds=1)
    monkeypatch.setattr("pulsar_ext.admin._transport.certificate_end", lambda _: ended)
    assert f"c.pem ended at {ended:%Y-%m-%d %H:%M:%S} UTC: renew it" in text()
