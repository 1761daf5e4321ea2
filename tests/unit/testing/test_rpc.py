"""Requests of a test run's processes to the one with the brokers."""

import contextlib
import socket
import threading
from multiprocessing import AuthenticationError

import pytest

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing.profiles import get_profile
from pulsar_ext.testing.rpc import PoolClient, PoolServer

PLAIN = get_profile("plain")


class Source:
    """Answers of a pool, without a broker."""

    def ask(self, method, profile):
        if method == "is_running":
            return profile == PLAIN
        raise BrokerStartError("no broker", reason="of this test", profile=profile.name)


@pytest.fixture
def server():
    with contextlib.closing(PoolServer(Source)) as serving:
        yield serving


def test_requests_are_answered(server):
    """An answer is returned, and an error raised with all of its details."""
    client = PoolClient(server.ticket)
    assert client.ask("is_running", PLAIN) is True
    with pytest.raises(BrokerStartError, match="no broker") as caught:
        client.ask("log_offset", PLAIN)
    assert caught.value.details == {"reason": "of this test", "profile": "plain"}


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x04nope"])
def test_silent_stranger_delays_no_other_client(server, sent):
    """A connection without the key that stays open, silent or not, delays no other client."""
    with socket.create_connection(("127.0.0.1", server.ticket["port"])) as stranger:
        stranger.sendall(sent)
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(PoolClient(server.ticket).ask("is_running", PLAIN)), daemon=True
        )
        asking.start()
        asking.join(20)
        assert answers == [True]


def test_wrong_key_is_rejected(server):
    """A client with a wrong key gets no answer, and the next one with the key does."""
    with pytest.raises(AuthenticationError):
        PoolClient({**server.ticket, "key": "00" * 32}).ask("is_running", PLAIN)
    assert PoolClient(server.ticket).ask("is_running", PLAIN) is True
