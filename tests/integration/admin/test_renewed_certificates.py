"""Certificates may be renewed on disk while an admin API is open."""

import asyncio
from pathlib import Path

import pytest

from pulsar_ext.admin import AsyncPulsarAdmin, PulsarAdmin
from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.testing.identity import certificate_files

BOTH_CLIENTS = True
pytestmark = pytest.mark.standalone_only("is about the files of mutual TLS")


@pytest.fixture
def files(pulsar_broker_factory, tmp_path):
    """Return the broker, options with files of an unknown authority, and a function that writes the right files."""
    broker = pulsar_broker_factory("mtls")
    right = broker.access.admin_options()
    unknown = certificate_files(["localhost", "127.0.0.1"], {"client": "stranger"})
    names = {
        "tls_trust_certs_file_path": "ca.pem",
        "tls_certificate_file_path": "client.pem",
        "tls_private_key_file_path": "client.key",
    }
    options = {option: str(tmp_path / name) for option, name in names.items()}

    def write(*chosen):
        for option, name in names.items():
            content = Path(right[option]).read_bytes() if option in chosen else unknown[name]
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").replace(tmp_path / name)

    return broker, {**right, **options, "max_attempts": 1}, write


def steps(write):
    """Write the files of each step, and yield its error: stranger, renewed, another authority, renewed."""
    client = {"tls_certificate_file_path", "tls_private_key_file_path"}
    trust = {"tls_trust_certs_file_path"}
    both = client | trust
    for chosen, error in ((trust, "is valid until"), (both, None), (client, "name the CA"), (both, None)):
        write(*chosen)
        yield error


def test_open_admin_uses_renewed_files(files):
    """An open `PulsarAdmin` uses the current certificate, key and trust store; the error has the expiry time."""
    broker, options, write = files
    write("tls_trust_certs_file_path")
    with PulsarAdmin(broker.admin_url, **options) as admin:
        for error in steps(write):
            if error is None:
                assert admin.clusters()
            else:
                with pytest.raises(AdminUnavailable, match=error):
                    admin.clusters()


def test_open_async_admin_uses_renewed_files(files):
    """An open `AsyncPulsarAdmin` uses the current files, with calls in flight while they change."""
    broker, options, write = files
    write("tls_trust_certs_file_path")

    async def ask():
        async with AsyncPulsarAdmin(broker.admin_url, **options) as admin:
            for error in steps(write):
                answers = await asyncio.gather(*(admin.clusters() for _ in range(5)), return_exceptions=True)
                if error is None:
                    assert all(isinstance(answer, list | tuple) for answer in answers), answers
                else:
                    assert all(isinstance(one, AdminUnavailable) and error in str(one) for one in answers), answers

    asyncio.run(ask())
