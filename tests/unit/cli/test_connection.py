"""Which admin API a command asks."""

import pytest

pytest.importorskip("cyclopts")

from pulsar_ext.cli.arguments import Access
from pulsar_ext.cli.connection import connected


@pytest.mark.parametrize(
    ("admin_url", "url", "asked"),
    [
        (None, None, "http://localhost:8080"),
        (None, "pulsar://broker.invalid:6650", "http://broker.invalid:8080"),
        (None, "pulsar+ssl://broker.invalid:6651", "https://broker.invalid:8443"),
        ("http://admin.invalid:1", "pulsar://broker.invalid:6650", "http://admin.invalid:1"),
    ],
)
def test_the_admin_api_is_that_of_the_broker(admin_url, url, asked):
    """Without a URL of its own it is the one on the broker's host, and never that of another broker on localhost."""
    with connected(admin_url, url, Access()) as (_, admin):
        assert admin.url == asked
