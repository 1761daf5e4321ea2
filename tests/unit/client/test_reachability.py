"""What a failed opening says of the broker: the addresses that are tried."""

from __future__ import annotations

import pytest

from pulsar_ext.client.reachability import addresses_of


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://localhost:6650", [("localhost", 6650)]),
        ("pulsar://a,b:1", [("a", 6650), ("b", 1)]),
        ("pulsar+ssl://broker.example/", [("broker.example", 6651)]),
        ("pulsar://[::1]:6650", [("::1", 6650)]),
        ("pulsar://[::1]", [("::1", 6650)]),
    ],
)
def test_a_service_url_names_addresses(url, addresses):
    """Each host of a service URL is tried, at the usual port if the URL names none."""
    assert addresses_of(url) == addresses
