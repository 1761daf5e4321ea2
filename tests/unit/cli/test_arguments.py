"""Choice of the admin API and of the broker for a command."""

import contextlib

import pytest

pytest.importorskip("cyclopts")

from pulsar_ext.cli.arguments import Reach


@pytest.mark.parametrize(
    ("admin_url", "url", "asked"),
    [
        (None, None, "http://localhost:8080"),
        (None, "pulsar://broker.invalid:6650", "http://broker.invalid:8080"),
        (None, "pulsar+ssl://broker.invalid:6651", "https://broker.invalid:8443"),
        ("http://admin.invalid:1", "pulsar://broker.invalid:6650", "http://admin.invalid:1"),
    ],
)
def test_admin_api_is_that_of_the_broker(admin_url, url, asked):
    """Without its own URL the admin API is on the broker's host, and never on localhost for another broker."""
    with Reach(admin_url=admin_url, url=url).connected() as (_, admin):
        assert admin.url == asked


@pytest.mark.parametrize(
    ("admin_url", "url"),
    [
        ("http://one.invalid:8081,two.invalid", "pulsar://one.invalid:6650,two.invalid:6650"),
        ("https://name:password@one.invalid:1/prefix", "pulsar+ssl://one.invalid:6651"),
        ("http://[::1]:8080", "pulsar://[::1]:6650"),
    ],
)
def test_broker_is_on_the_hosts_of_the_admin_api(admin_url, url, monkeypatch):
    """Without its own URL the broker is at the usual port of each host of the admin API."""
    asked = []

    def open_one(_, url, admin):
        asked.append(url)
        return contextlib.nullcontext()

    monkeypatch.setattr(Reach, "open_client", open_one)
    with Reach(admin_url=admin_url).connected():
        assert asked == [url]
