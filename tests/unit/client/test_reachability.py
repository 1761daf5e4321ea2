"""Addresses of a service URL are probed after a failed opening."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pulsar_ext.client.reachability import addresses_of, problem_of


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
def test_addresses_of_a_service_url(url, addresses):
    """Each host of a service URL is probed, at the default port if the URL has none."""
    assert addresses_of(url) == addresses


def test_admin_api_is_distinguished_from_a_broker():
    """A port that answers in HTTP is not a broker's; one that closes the connection may be."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        assert "HTTP" in problem_of(*server.server_address)
        server.shutdown()
    assert "refused" in problem_of(*server.server_address)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def close_connection():
            silent.accept()[0].close()

        closing = threading.Thread(target=close_connection)
        closing.start()
        assert not problem_of(*silent.getsockname())
        closing.join()
