"""What the tests of chunked messages and of misuse share: a broker, a client and a topic of their own."""

from __future__ import annotations

import pytest


@pytest.fixture
def broker(pulsar_broker_factory):
    """A broker where 100 KiB is the largest message."""
    return pulsar_broker_factory("small-chunks")


@pytest.fixture
def client(pulsar_client_factory, broker):
    """A client of that broker."""
    return pulsar_client_factory(broker)


@pytest.fixture
def topic(pulsar_topic_factory, broker):
    """An unused topic."""
    return pulsar_topic_factory(broker=broker)


@pytest.fixture
def admin(client):
    """The client's own admin API."""
    return client._admin_api()
